#include "cli/recipe.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/proc.h"
#include "core/str.h"

#define FILE_MAX 65536
#define BUILD_VERSION "1"       /* raise when the same recipe would come out different */

void recipe_init(struct recipe *r)
{
	memset(r, 0, sizeof *r);
	buf_init(&r->packages, FILE_MAX);
	str_copy(r->components, sizeof r->components, "main");
}

void recipe_done(struct recipe *r)
{
	buf_done(&r->packages);
	for (size_t i = 0; i < r->nruns; i++)
		free(r->runs[i]);
}

static bool package_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && !strchr("+-.:", s[i]))
			return false;
	return n > 1 && isalnum((unsigned char)s[0]);
}

static int add_packages(struct recipe *r, const char *value, struct err *e)
{
	for (const char *s = value; *(s += strspn(s, " \t,"));) {
		size_t n = strcspn(s, " \t,");

		if (!package_name(s, n))
			return err_set(e, EINVAL, "'%.*s' isn't a package's name", (int)n, s);
		if (r->packages.len)
			buf_addc(&r->packages, ',');
		buf_add(&r->packages, s, n);
		s += n;
	}
	return buf_ok(&r->packages) ? 0 : err_set(e, E2BIG, "too many packages");
}

static int set_word(struct recipe *r, const char *word, const char *value, struct err *e)
{
	const struct { const char *word; char *to; size_t size; } plain[] = {
		{ "about", r->about, sizeof r->about }, { "suite", r->suite, sizeof r->suite },
		{ "mirror", r->mirror, sizeof r->mirror }, { "components", r->components, sizeof r->components },
	};

	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		if (str_eq(word, plain[i].word))
			return str_copy(plain[i].to, plain[i].size, value) < 0 ? err_set(e, E2BIG, "'%s' is too long", word) : 0;
	if (str_eq(word, "packages"))
		return add_packages(r, value, e);
	if (!str_eq(word, "run")) {
		err_set(e, EINVAL, "there is no word '%.40s'", word);
		return err_hint(e, "a recipe's words are about, suite, mirror, components, packages and run");
	}
	if (r->nruns == RECIPE_RUNS)
		return err_set(e, E2BIG, "more than %d run lines", RECIPE_RUNS);
	r->runs[r->nruns] = strdup(value);
	return r->runs[r->nruns++] ? 0 : err_set(e, ENOMEM, "no memory");
}

static int parse(struct recipe *r, const char *text, const char *name, struct err *e)
{
	AUTO_FREE char *copy = strdup(text);
	char *rest = copy, *line;
	unsigned number = 0;

	if (!copy)
		return err_set(e, ENOMEM, "read '%s': no memory", name);
	while ((line = strsep(&rest, "\n"))) {
		number++;
		line += strspn(line, " \t\r");
		size_t end = strlen(line);

		while (end && isspace((unsigned char)line[end - 1]))
			line[--end] = '\0';
		if (!*line || *line == '#')
			continue;
		size_t n = strcspn(line, " \t");
		char *value = line + n + strspn(line + n, " \t");

		line[n] = '\0';
		if (!*value)
			return err_set(e, EINVAL, "%s:%u: '%.40s' has no value", name, number, line);
		if (set_word(r, line, value, e) < 0)
			return err_wrap(e, "%s:%u", name, number);
	}
	if (!r->suite[0] || !r->packages.len)
		return err_set(e, EINVAL, "%s: a recipe needs a suite and packages", name);
	return 0;
}

int recipe_load(struct recipe *r, const char *name, struct err *e)
{
	char self[4096] = "", path[4400];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	const char *env = getenv("BUREAU_TEMPLATES");
	AUTO_FREE char *text = NULL;
	size_t len;

	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
	}
	const struct { const char *dir, *below; } places[] = { { env, "" }, { self, "/templates" }, { self, "/../templates" }, { BUREAU_LIBEXEC, "/templates" } };

	if (strchr(name, '/') || str_ends(name, ".recipe")) {
		if (fd_read_file(AT_FDCWD, name, FILE_MAX, &text, &len, e) < 0)
			return -e->code;
		return parse(r, text, name, e);
	}
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		if (!places[i].dir || snprintf(path, sizeof path, "%s%s/%s.recipe", places[i].dir, places[i].below, name) >= (int)sizeof path)
			continue;
		if (access(path, R_OK) < 0)
			continue;
		if (fd_read_file(AT_FDCWD, path, FILE_MAX, &text, &len, e) < 0)
			return -e->code;
		return parse(r, text, path, e);
	}
	err_set(e, ENOENT, "there is no recipe for '%s'", name);
	return err_hint(e, "recipes we ship are in templates/ ('base'); your own: bureau template build ./my.recipe");
}

void digest_hex(const void *p, size_t n, char out[65])
{
	unsigned char md[32] = { 0 };
	unsigned len = 0;
	AUTO_BUF struct buf hex = BUF_INIT(65);

	EVP_Digest(p, n, md, &len, EVP_sha256(), NULL);
	str_hex(&hex, md, sizeof md);
	str_copy(out, 65, buf_at(&hex));
}

void recipe_digest(const struct recipe *r, char out[65])
{
	AUTO_BUF struct buf all = BUF_INIT(1 << 20);

	buf_printf(&all, BUILD_VERSION "\n%s\n%s\n%s\n%s\n", r->suite, r->mirror, r->components, buf_at(&r->packages));
	for (size_t i = 0; i < r->nruns; i++)
		buf_printf(&all, "%s\n", r->runs[i]);
	digest_hex(buf_at(&all), all.len, out);
}
