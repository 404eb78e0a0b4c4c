#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "core/str.h"
#include "machine/machine.h"

static bool built(const char *state_dir, const char *name)
{
	char path[4200];

	snprintf(path, sizeof path, "%s/templates/%s/current/rootfs", state_dir, name);
	return access(path, F_OK) == 0;
}

int template_resolve(const char *state_dir, const char *name, char ret[65], const char **ret_notice, struct err *e)
{
	*ret_notice = "";
	if (!str_name(name))
		return err_set(e, EINVAL, "'%.80s' can't be a template's name", name);
	if (str_eq(name, "host") || built(state_dir, name)) {
		str_copy(ret, 65, name);
		return 0;
	}
	if (str_eq(name, "base")) {
		*ret_notice = "template 'base' isn't built here, so this computer was made from 'host'; 'bureau template build base' builds it";
		str_copy(ret, 65, "host");
		return 0;
	}
	err_set(e, ENOENT, "template '%s' isn't here", name);
	return err_hint(e, "'bureau template list' shows what is; 'bureau template build' makes one");
}
