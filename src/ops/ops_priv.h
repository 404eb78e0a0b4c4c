#ifndef OPS_OPS_PRIV_H
#define OPS_OPS_PRIV_H
#include "ops/ops.h"
/* What the table and the handlers share; the table itself is made by tools/gen-ops. */
enum op_states { OS_CREATING = 1, OS_RUNNING = 2, OS_PAUSED = 4, OS_ENDED = 8 };

struct op_def {
	struct op_info info;
	unsigned states;             /* legal states of the computer; 0 = the operation has none */
	bool audit;
	void (*run)(struct op_call *c);
};
extern const struct op_def op_defs[];    /* sorted by name */
extern const size_t op_defs_n;

#endif
