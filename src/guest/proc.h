#ifndef GUEST_PROC_H
#define GUEST_PROC_H
#include "core/buf.h"
#include "guest/guest.h"
#include "guest/ring.h"
/* proc -- the programs our side started, their output and their readers.
 *
 *   running   started, not reaped
 *   reaped    its status is known, but somebody (a child it left) still holds its output open
 *   ended     output is over too: G_EXIT went, or goes, to each reader once it has all output
 * Reaped becomes ended when output reaches its end; at once, after what is there was read, when the program was killed by a
 * signal or by our timeout, or had a terminal (a terminal whose shell is gone is over). */
struct proc {
	struct list node;           /* in guest.procs, in order of start */
	struct guest *g;
	pid_t pid;
	struct proc *next_pid;      /* in its bucket of guest.by_pid */
	uint32_t flags;             /* enum guest_start */
	char *cmd, *cwd, *tag;      /* in one block with args */
	char *args;                 /* nargs strings, one after the other */
	size_t nargs, bytes;
	struct source out, err, in; /* fd -1: over. A terminal is `out` for both ways */
	struct ring *ring;
	struct list streams;
	struct buf input;
	uint64_t input_taken;       /* bytes of input so far, written or queued */
	bool input_close;           /* close stdin once the input is written */
	bool reaped, timed_out, drain, ended;
	int status;
	struct timer timeout;
	struct job later;           /* output_resume */
};
struct stream {
	struct list in_proc, in_conn;
	struct conn *c;
	struct proc *p;
	uint32_t id;
	uint64_t at;                /* offset of the next byte to send */
	uint32_t credit;
};

/* proc.c */
struct proc *proc_find(struct guest *g, uint32_t pid, const char *tag);
bool proc_reaped(struct guest *g, pid_t pid, int status);   /* false: not one of ours */
void proc_check_end(struct proc *p);
void proc_kill_group(struct proc *p, int signo);
void proc_free(struct proc *p);
void proc_how(const struct proc *p, uint32_t *ret_how, uint32_t *ret_code);
void proc_attach(struct conn *c, struct msg_reader *r);
void proc_input(struct conn *c, struct msg_reader *r);
void proc_input_close(struct conn *c, struct msg_reader *r);
void proc_signal(struct conn *c, struct msg_reader *r);
void proc_resize(struct conn *c, struct msg_reader *r);
void proc_list(struct conn *c, struct msg_reader *r);

/* start.c */
void proc_start(struct conn *c, struct msg_reader *r);
void proc_added(struct guest *g, struct proc *p);            /* proc.c: into the tables */

/* output.c */
void output_ready(struct source *s, uint32_t events);       /* `ready` of out and err */
void input_ready(struct source *s, uint32_t events);        /* `ready` of in */
int output_watch(struct proc *p, struct err *e);            /* put the open sources into the loop */
void output_drain(struct proc *p);                          /* read what is there, then close */
void output_flow(struct proc *p);                           /* read or not, by the room there is */
void output_resume(struct proc *p);                          /* after a reader moved on or left */
void output_pump(struct proc *p);                            /* to all readers */
void output_close(struct proc *p, struct source *s);
int input_add(struct proc *p, const void *bytes, size_t n);
void input_close(struct proc *p);
struct stream *stream_add(struct conn *c, struct proc *p, uint32_t id, uint64_t at, uint32_t credit);
void stream_free(struct stream *s);
void stream_pump(struct stream *s);                         /* may free s */
void stream_pump_conn(struct conn *c);
struct stream *stream_find(struct conn *c, uint32_t id);
#endif
