#ifndef DOOR_HOSTS_H
#define DOOR_HOSTS_H
#include <stddef.h>
#include <stdint.h>
#include "core/err.h"
#include "door/addr.h"
/* hosts -- the host's /etc/resolv.conf and /etc/hosts, read again when they changed (looked at once a second at most). */
#define HOSTS_SERVERS 3
struct server { struct addr addr; uint16_t port; uint32_t scope; };
struct hosts;
/* servers: "ADDR[:PORT],..." in place of resolv.conf and of the hosts file, or NULL. */
int hosts_create(const char *servers, struct hosts **ret, struct err *e);
void hosts_free(struct hosts *h);
size_t hosts_servers(struct hosts *h, struct server ret[HOSTS_SERVERS]);
size_t hosts_lookup(struct hosts *h, const char *name, struct addr *ret, size_t max);

/* The two parsers, on text. */
size_t hosts_parse_resolv(const char *text, struct server ret[HOSTS_SERVERS]);
size_t hosts_parse_lookup(const char *text, const char *name, struct addr *ret, size_t max);
int hosts_parse_server(const char *s, struct server *ret);     /* "1.2.3.4", "1.2.3.4:53", "::1", "[::1]:53" */
#endif
