#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H
#include <stdbool.h>
#include <stddef.h>
/* doctor -- each check tries the thing itself, in a child that may break or hang without harm, and says how to fix it. */
enum health { HEALTH_OK, HEALTH_NOTE /* worth knowing */, HEALTH_LESS /* works, with less */, HEALTH_BAD };

struct finding {
	enum health health;
	char detail[240];
	char fix[320];
};

struct check {
	const char *name;
	bool required;          /* without it no sandbox can run */
	void (*run)(struct finding *f);
};
extern const struct check doctor_checks[];
extern const size_t doctor_nchecks;

void finding_set(struct finding *f, enum health h, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void finding_fix(struct finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Enters new namespaces as a plain user would (root becomes nobody first); the caller is root inside. 0 or -errno. */
int doctor_enter(int flags);
/* Whether the redirect that the door needs can be made in this network namespace. 0 or -errno. */
int doctor_nft_redirect(void);
long doctor_number(const char *path, long missing);
void doctor_limits(struct finding *f);
void doctor_memory(struct finding *f);
void doctor_cgroups(struct finding *f);
void doctor_programs(struct finding *f);
#endif
