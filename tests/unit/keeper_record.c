#include "keeper/keeper.h"
#include "core/str.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOOD "bureau-keeper 1\nboot b00t\npid 42\nstart 12345678901\nslot 7\nnet 1\ntemplate base\n"

static const struct { const char *text; int code; const char *what; } cases[] = {
	{ GOOD, 0, "a whole record" },
	{ "bureau-keeper 1\nboot other\npid 42\nstart 1\nslot 7\nnet 1\ntemplate base\n", -ESTALE, "of another boot" },
	{ "", -EINVAL, "empty" },
	{ "bureau-keeper 2\nboot b00t\npid 42\nstart 1\nslot 7\nnet 1\ntemplate base\n", -EINVAL, "another version" },
	{ "bureau-keeper 1\nboot b00t\npid 42\nstart 1\nslot 7\nnet 1\ntemplate base", -EINVAL, "cut at the end" },
	{ "bureau-keeper 1\nboot b00t\npid 42\n", -EINVAL, "cut in the middle" },
	{ GOOD "more\n", -EINVAL, "too long" },
	{ "bureau-keeper 1\nboot b00t\npid 0\nstart 1\nslot 7\nnet 1\ntemplate base\n", -EINVAL, "pid 0 would be everybody" },
	{ "bureau-keeper 1\nboot b00t\npid -1\nstart 1\nslot 7\nnet 1\ntemplate base\n", -EINVAL, "a negative pid" },
	{ "bureau-keeper 1\nboot b00t\npid 42\nstart 1\nslot 99999999\nnet 1\ntemplate base\n", -EINVAL, "a slot there isn't" },
	{ "bureau-keeper 1\nboot b00t\npid 42\nstart 1\nslot 7\nnet 1\ntemplate ../x\n", -EINVAL, "a template that is a path" },
	{ "bureau-keeper 1\nboot b00t\npid 42\nstart 1\nslot 7\nnet 9\ntemplate base\n", -EINVAL, "a network mode there isn't" },
	{ "bureau-keeper 1\nboot 0123456789012345678901234567890123456789012345678901234567890123\npid 42\n", -EINVAL, "a field that is too long" },
};

int main(void)
{
	struct keeper k = { .run_fd = -1, .boot = "b00t" };
	struct record r = { .pid = 42, .start_time = 12345678901u, .slot = 7, .net = 1, .template_name = "base" }, back;
	char dir[256];
	struct err e;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ok(record_parse(cases[i].text, "b00t", &back) == cases[i].code, "%s", cases[i].what);
	if (!mkdtemp(tap_tmp(dir, sizeof dir, "bureau-record")))
		return 1;
	k.records_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ok(record_write(&k, "abcdefgh1", &r, &e) == 0, "written");
	ok(record_read(&k, "abcdefgh1", &back) == 0 && back.pid == 42 && back.start_time == 12345678901u && back.slot == 7 && back.net == 1 &&
		str_eq(back.template_name, "base"), "and read back");
	ok(record_read(&k, "nothere99", &back) == -ENOENT, "one that isn't there");
	ok(symlinkat("/etc/passwd", k.records_fd, "linktest1") == 0 && record_write(&k, "linktest1", &r, &e) < 0, "a link in the way isn't followed");
	record_remove(&k, "abcdefgh1");
	ok(record_read(&k, "abcdefgh1", &back) == -ENOENT, "removed");
	unlinkat(k.records_fd, "linktest1", 0);
	rmdir(dir);
	return done_testing();
}
