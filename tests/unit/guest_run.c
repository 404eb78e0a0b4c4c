/* Programs: start, output, exit, attach, input, signal, list. */
#include "tap.h"
#include "guest_lab.h"

static struct lab l;

static void simple(void)
{
	struct lab_stream *s = lab_sh(&l, "", "echo out; echo err >&2; exit 3");

	ok(!s->failed && s->pid > 1, "started");
	is_str(s->text, "out\n", "stdout");
	is_str(s->err, "err\n", "stderr");
	ok(s->exited && s->how == GUEST_EXITED && s->exit_code == 3, "exit 3");
	s = lab_sh(&l, "", "id -u; pwd; echo $HOME $USER $LOGNAME $SHELL; umask; echo $PATH");
	is_str(s->text, l.single ? "0\n/home/user\n/home/user user user /bin/bash\n0022\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n" :
		"1000\n/home/user\n/home/user user user /bin/bash\n0022\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n", "the default user");
	s = lab_sh(&l, "root", "id -u; pwd");
	is_str(s->text, "0\n/root\n", "root");
	if (!l.single) {
		s = lab_sh(&l, "other", "id -G");
		is_str(s->text, "1001 2000\n", "groups");
		s = lab_sh(&l, "", "grep -E 'Cap(Prm|Eff)' /proc/self/status | tr -d '\t\n'; cat /proc/self/oom_score_adj");
		is_str(s->text, "CapPrm:0000000000000000CapEff:0000000000000000100\n", "no capabilities, first to be killed for memory");
	}
	s = lab_sh(&l, "", "ls -l /proc/self/fd | grep -c -- '->'; grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\t\n'");
	is_str(s->text, "4\nSigBlk:0000000000000000SigIgn:0000000000000000", "no descriptors, no signal masks of ours");
	s = lab_run(&l, &(struct lab_prog){ .cmd = "env", .envs = { "A=1", "A=2", "PATH=/usr/bin:/bin" } });
	lab_until(&l, s->exited);
	ok(strstr(s->text, "A=2\n") && !strstr(s->text, "A=1\n") && strstr(s->text, "PATH=/usr/bin:/bin\n"), "later environment wins");
	s = lab_sh(&l, "", "kill -9 $$");
	ok(s->exited && s->how == GUEST_SIGNALED && s->exit_code == SIGKILL, "killed by a signal");
}

static void refused(void)
{
	struct lab_stream *s = lab_run(&l, &(struct lab_prog){ .cmd = "no-such-program" });

	ok(s->failed && s->code == ENOPKG, "%s", s->msg);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "true", .cwd = "/nowhere" });
	ok(s->failed && s->code == ENOENT && strstr(s->msg, "cwd '/nowhere' does not exist"), "%s", s->msg);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "true", .user = "nobody-here" });
	ok(s->failed && s->code == EACCES, "%s", s->msg);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "/etc/passwd" });
	ok(s->failed && s->code == ENOEXEC, "%s", s->msg);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "true", .flags = 0x8000 });
	ok(s->failed && s->code == EINVAL, "%s", s->msg);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "" });
	ok(s->failed && s->code == EINVAL, "%s", s->msg);
}

static struct lab_stream *give(struct lab_stream *s, const char *text, uint64_t at)
{
	struct msg_writer w;
	struct lab_stream *q = lab_about(&l, &w, G_INPUT, s->pid, "");

	msg_put_u8(&w, 0);
	msg_put_bytes(&w, text, strlen(text));
	msg_put_u64(&w, at);
	return lab_call(&l, q, &w);
}

/* A lost answer is asked for again: nothing comes twice. */
static void input_again(void)
{
	struct lab_stream *s = lab_run(&l, &(struct lab_prog){ .cmd = "cat", .flags = GS_STDIN_PIPE }), *q;
	struct msg_writer w;

	ok(!give(s, "one\n", 0)->failed && !give(s, "one\n", 0)->failed, "the same input twice");
	ok(!give(s, "e\ntwo\n", 2)->failed, "input that begins in what was given");
	ok(give(s, "four\n", 13)->code == ERANGE, "a hole in the input is refused");
	q = lab_call(&l, lab_about(&l, &w, G_INPUT_CLOSE, s->pid, ""), &w);
	ok(!q->failed && !give(s, "two\n", 4)->failed, "what a closed stdin had is had");
	lab_until(&l, s->exited);
	is_str(s->text, "one\ntwo\n", "once");
}

static void input(void)
{
	struct lab_stream *s = lab_run(&l, &(struct lab_prog){ .cmd = "cat", .flags = GS_STDIN_PIPE, .tag = "cat" }), *q;
	static char big[50000];
	struct msg_writer w;
	int sent = 0;

	memset(big, 'x', sizeof big);
	for (int i = 0; i < 20; i++) {
		q = lab_about(&l, &w, G_INPUT, 0, "cat");
		msg_put_u8(&w, 0);
		msg_put_bytes(&w, big, sizeof big);
		sent += !lab_call(&l, q, &w)->failed;
	}
	q = lab_call(&l, lab_about(&l, &w, G_INPUT_CLOSE, s->pid, ""), &w);
	ok(!q->failed, "closed");
	q = lab_call(&l, lab_about(&l, &w, G_INPUT_CLOSE, s->pid, ""), &w);
	ok(!q->failed, "twice is fine");
	lab_until(&l, s->exited);
	ok(sent == 20 && s->n == 20 * sizeof big && s->exit_code == 0, "all input came back: %zu of %d x 50000", s->n, sent);
	q = lab_about(&l, &w, G_INPUT, s->pid, "");
	msg_put_u8(&w, 0);
	msg_put_bytes(&w, "x", 1);
	ok(lab_call(&l, q, &w)->code == EPIPE, "input after the end");
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sleep", .args = { "100" }, .flags = GS_STDIN_PIPE });
	for (int i = 0; i < 40; i++) {
		q = lab_about(&l, &w, G_INPUT, s->pid, "");
		msg_put_u8(&w, 0);
		msg_put_bytes(&w, big, sizeof big);
		if (lab_call(&l, q, &w)->failed)
			break;
	}
	ok(q->failed && q->code == EAGAIN, "a bounded queue: %s", q->msg);
	q = lab_about(&l, &w, G_INPUT, s->pid, "");
	msg_put_u8(&w, 1);
	msg_put_bytes(&w, "x", 1);
	ok(lab_call(&l, q, &w)->code == EINVAL, "wrong kind");
	q = lab_about(&l, &w, G_SIGNAL, s->pid, "");
	msg_put_u32(&w, SIGTERM);
	msg_put_u8(&w, 1);
	ok(!lab_call(&l, q, &w)->failed, "signal the group");
	lab_until(&l, s->exited);
	ok(s->how == GUEST_SIGNALED && s->exit_code == SIGTERM, "it ended by it");
	q = lab_about(&l, &w, G_SIGNAL, s->pid, "");
	msg_put_u32(&w, SIGTERM);
	msg_put_u8(&w, 1);
	ok(lab_call(&l, q, &w)->code == ESRCH, "%s", q->msg);
}

static struct lab_stream *attach(uint32_t pid, uint64_t from, uint32_t window)
{
	struct msg_writer w;
	struct lab_stream *s = lab_about(&l, &w, G_ATTACH, pid, "");

	msg_put_u64(&w, from);
	msg_put_u32(&w, window);
	return lab_call(&l, s, &w);
}

static void detach(uint32_t id)
{
	struct msg_writer w;
	struct lab_stream *s = lab_begin(&l, &w, G_DETACH);

	msg_put_u32(&w, id);
	lab_call(&l, s, &w);
}

static void credit(uint32_t id, uint32_t n)
{
	uint8_t mem[64];
	struct msg_writer w;

	msg_writer_init(&w, mem, sizeof mem, G_CREDIT, 0);
	msg_put_u32(&w, id);
	msg_put_u32(&w, n);
	lab_send(&l, &w);
}

static void streams(void)
{
	struct lab_stream *s = lab_sh(&l, "", "echo one; echo two"), *t;

	t = attach(s->pid, 0, 1000);
	lab_until(&l, t->exited);
	is_str(t->text, "one\ntwo\n", "an ended program's output");
	t = attach(s->pid, 4, 1000);
	lab_until(&l, t->exited);
	is_str(t->text, "two\n", "from an offset");
	t = attach(s->pid, UINT64_MAX, 1000);
	lab_until(&l, t->exited);
	ok(t->n == 0 && t->exited, "live only");
	ok(attach(99999, 0, 1)->code == ESRCH, "unknown");

	/* back-pressure: the writer stops when the ring is full of what the reader hasn't got */
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "head -c 1000000 /dev/zero; echo end" }, .window = 1000 });
	for (int i = 0; i < 20; i++)
		lab_turn(&l, 20);
	ok(s->n == 1000 && !s->exited, "no more than the window: %zu", s->n);
	credit(s->id, 5000);
	lab_until(&l, s->n >= 6000);
	ok(s->n == 6000 && !s->exited, "no more than the credit: %zu", s->n);
	credit(s->id, 2000000);
	lab_until(&l, s->exited);
	ok(s->n == 1000004 && s->gap == 0, "nothing was lost: %zu", s->n);

	/* nobody reads: the newest stay */
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "sleep 0.2; head -c 1000000 /dev/zero; echo end" } });
	detach(s->id);
	for (int i = 0; i < 200; i++) {
		t = attach(s->pid, UINT64_MAX, 0);
		for (int k = 0; k < 5 && !t->exited; k++)
			lab_turn(&l, 5);
		detach(t->id);
		if (t->exited)
			break;
	}
	ok(!s->exited && s->n == 0, "nothing comes after a detach");
	t = attach(s->pid, 1, UINT32_MAX);
	lab_until(&l, t->exited);
	ok(t->n == GUEST_RING && t->gap == 1000004 - GUEST_RING - 1, "%zu kept, %llu lost", t->n, (unsigned long long)t->gap);
	is_str(t->text + t->n - 4, "end\n", "the newest");
	t = attach(s->pid, GUEST_FROM_FIRST, UINT32_MAX);
	lab_until(&l, t->exited);
	ok(t->n == GUEST_RING && t->gap == 1000004 - GUEST_RING, "%llu lost when all of it was wanted", (unsigned long long)t->gap);
	t = attach(s->pid, 0, UINT32_MAX);
	lab_until(&l, t->exited);
	ok(t->n == GUEST_RING && t->gap == 0, "none when what is kept was");
}

static void ends(void)
{
	int64_t t0 = clock_mono_ms();
	struct lab_stream *s = lab_sh(&l, "", "sleep 0.3 & echo started");

	ok(s->exited && clock_mono_ms() - t0 >= 250, "a child that holds stdout keeps the stream open");
	s = lab_sh(&l, "", "sleep 100 & echo $!; kill -9 $$");
	ok(s->exited && s->how == GUEST_SIGNALED, "but not when the program was killed");
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "echo a; sleep 100; echo b" }, .timeout = 100 });
	lab_until(&l, s->exited);
	ok(s->how == GUEST_TIMED_OUT, "timeout");
	is_str(s->text, "a\n", "what it had said is there");
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "(trap '' TERM; sleep 100) & exit 0" }, .timeout = 200 });
	lab_until(&l, s->exited);
	ok(s->how == GUEST_TIMED_OUT, "timeout of what was left behind");
	s = lab_sh(&l, "", "(setsid sh -c 'sleep 0.1; exit 7' >/dev/null 2>&1 &) ; exit 0");
	ok(s->exited && s->exit_code == 0, "an orphan");
	for (int i = 0; i < 100; i++) {
		s = lab_sh(&l, "", "grep -l 'State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l");
		if (strcmp(s->text, "0\n") == 0)
			break;
	}
	is_str(s->text, "0\n", "is reaped");
}

static void terminal(void)
{
	struct lab_stream *s = lab_run(&l, &(struct lab_prog){ .cmd = "bash", .args = { "--norc", "-i" }, .flags = GS_PTY, .cols = 100, .rows = 30, .envs = { "PS1=", "TERM=dumb" } }), *q;
	struct msg_writer w;

	q = lab_about(&l, &w, G_INPUT, s->pid, "");
	msg_put_u8(&w, 1);
	msg_put_bytes(&w, "stty size; tty; ls -l $(tty) | cut -c1-10\n", 42);
	ok(!lab_call(&l, q, &w)->failed, "typed");
	lab_until(&l, strstr(s->text, "crw"));
	ok(strstr(s->text, "30 100\r\n") && strstr(s->text, "/dev/pts/"), "a terminal of 30 x 100");
	q = lab_about(&l, &w, G_RESIZE, s->pid, "");
	msg_put_u16(&w, 120);
	msg_put_u16(&w, 40);
	ok(!lab_call(&l, q, &w)->failed, "resized");
	q = lab_about(&l, &w, G_INPUT, s->pid, "");
	msg_put_u8(&w, 1);
	msg_put_bytes(&w, "stty size; sleep 100\n", 21);
	lab_call(&l, q, &w);
	lab_until(&l, strstr(s->text, "40 120\r\n"));
	ok(strstr(s->text, "40 120\r\n") != NULL, "new size");
	q = lab_call(&l, lab_about(&l, &w, G_INPUT_CLOSE, s->pid, ""), &w);
	ok(q->code == EINVAL, "%s", q->msg);
	for (int i = 0; i < 20; i++)
		lab_turn(&l, 10);
	q = lab_about(&l, &w, G_INPUT, s->pid, "");
	msg_put_u8(&w, 1);
	msg_put_bytes(&w, "\003", 1);
	lab_call(&l, q, &w);
	q = lab_about(&l, &w, G_INPUT, s->pid, "");
	msg_put_u8(&w, 1);
	msg_put_bytes(&w, "sleep 100 & exit 5\n", 19);
	lab_call(&l, q, &w);
	lab_until(&l, s->exited);
	ok(s->exited && s->how == GUEST_EXITED && s->exit_code == 5, "Ctrl-C works, and it ends with its shell: %u", s->exit_code);
}

static void descriptors(void)
{
	int p[2];
	struct lab_stream *s;
	char got[64] = "";
	ssize_t n;

	if (pipe2(p, O_CLOEXEC) < 0)
		return;
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sh", .args = { "-c", "echo direct" }, .flags = GS_FDS, .fds = { p[0], p[1], p[1] } });
	lab_until(&l, s->exited);
	n = read(p[0], got, sizeof got - 1);
	ok(n > 0 && s->n == 0, "output goes to our descriptor only");
	is_str(got, "direct\n", "directly");
	close(p[1]);
	ok(read(p[0], got, 1) == 0, "the guest keeps none of them");
	close(p[0]);
}

static void memory(void)
{
	struct lab_stream *first = lab_sh(&l, "", "head -c 300000 /dev/zero; exit 9"), *t;
	uint32_t pid = first->pid;

	for (int i = 0; i < 10; i++)
		lab_sh(&l, "", "head -c 300000 /dev/zero");
	t = attach(pid, 0, UINT32_MAX);
	lab_until(&l, t->exited);
	ok(t->n == 0 && t->exit_code == 9, "old output is dropped before how it ended");
	t = lab_sh(&l, "root", "grep -E '^(RssAnon|VmData)' /proc/1/status | head -1 | tr -dc 0-9");
	ok(LAB_ROOMY || strtol(t->text, NULL, 10) < 3500, "kept output is bounded: %s KiB", t->text);
}

static void list(void)
{
	struct lab_stream *a = lab_run(&l, &(struct lab_prog){ .cmd = "sleep", .args = { "100" }, .tag = "a" }), *q;
	struct msg_writer w;

	q = lab_begin(&l, &w, G_LIST);
	msg_put_u8(&w, 0);
	lab_call(&l, q, &w);
	ok(!q->failed && q->count == 1, "one runs");
	q = lab_begin(&l, &w, G_LIST);
	msg_put_u8(&w, 1);
	lab_call(&l, q, &w);
	ok(q->count > 10, "%u with the ended ones", q->count);
	q = lab_about(&l, &w, G_SIGNAL, 0, "a");
	msg_put_u32(&w, SIGKILL);
	msg_put_u8(&w, 0);
	lab_call(&l, q, &w);
	lab_until(&l, a->exited);
	ok(a->how == GUEST_SIGNALED, "signalled by tag");
}

int main(void)
{
	if (!lab_start(&l)) {
		skip("no user namespaces here");
		return done_testing();
	}
	simple();
	refused();
	input();
	input_again();
	streams();
	ends();
	terminal();
	descriptors();
	memory();
	list();
	lab_end(&l);
	return done_testing();
}
