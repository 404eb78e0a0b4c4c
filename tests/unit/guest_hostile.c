/* A computer whose programs take all there is: the guest says so, goes on, and works again afterwards. */
#include "tap.h"
#include "guest_lab.h"

static struct lab l;

static bool alive(void)
{
	struct msg_writer w;
	struct lab_stream *s = lab_begin(&l, &w, G_HELLO);
	int64_t t0 = clock_mono_ms();

	msg_put_u32(&w, GUEST_VERSION);
	lab_call(&l, s, &w);
	return !s->failed && s->answered && clock_mono_ms() - t0 < 3000;
}

static struct lab_stream *signal_group(uint32_t pid)
{
	struct msg_writer w;
	struct lab_stream *s = lab_about(&l, &w, G_SIGNAL, pid, "");

	msg_put_u32(&w, SIGKILL);
	msg_put_u8(&w, 1);
	return lab_call(&l, s, &w);
}

static void processes(void)
{
	struct lab_stream *s, *t;
	struct msg_writer w;

	l = (struct lab){ .nproc = 100 };
	lab_start(&l);
	s = lab_run(&l, &(struct lab_prog){ .cmd = "python3", .args = { "-c",
		"import os,time\ntry:\n while os.fork():pass\n time.sleep(60)\nexcept OSError:\n print('full',flush=True)\n time.sleep(60)" } });
	lab_until(&l, s->n || s->exited);
	t = lab_run(&l, &(struct lab_prog){ .cmd = "true" });
	/* as root PID 1 itself is above that limit, and what it starts may be too */
	ok(t->failed ? t->code == EAGAIN : !l.single, "no process left: %s", t->msg);
	ok(alive(), "the guest answers");
	t = lab_begin(&l, &w, G_STAT);
	msg_put_str(&w, "/etc/passwd"), msg_put_str(&w, "");
	ok(!lab_call(&l, t, &w)->failed, "files can be asked for");
	ok(!signal_group(s->pid)->failed, "the group is killed");
	lab_until(&l, s->exited);
	for (int i = 0; i < 200; i++) {
		t = lab_run(&l, &(struct lab_prog){ .cmd = "true" });
		if (!t->failed)
			break;
	}
	ok(!t->failed, "programs start again");
	s = lab_run(&l, &(struct lab_prog){ .cmd = "bash", .args = { "-c", "b() { b | b & }; b" }, .timeout = 1000 });
	for (int i = 0; i < 10; i++)
		lab_turn(&l, 100);
	ok(alive(), "a fork bomb doesn't stop the guest");
	lab_end(&l);
}

static void descriptors(void)
{
	struct lab_stream *s, *t = NULL;
	int fds[100], n = 0;

	l = (struct lab){ .nofile = 40 };
	lab_start(&l);
	for (int i = 0; i < 30; i++) {
		s = lab_run(&l, &(struct lab_prog){ .cmd = "sleep", .args = { "60" }, .flags = GS_STDIN_PIPE, .tag = "s" });
		if (s->failed)
			break;
		t = s;
	}
	ok(s->failed && s->code == EMFILE, "no descriptor left: %s", s->msg);
	ok(alive(), "the guest answers");
	for (n = 0; n < 12; n++)
		fds[n] = lab_connect(&l);
	ok(alive(), "connections that can't be accepted don't stop it");
	while (n)
		close(fds[--n]);
	signal_group(t->pid);
	lab_until(&l, t->exited);
	for (int i = 0; i < 100; i++) {
		s = lab_run(&l, &(struct lab_prog){ .cmd = "true" });
		if (!s->failed)
			break;
		poll(NULL, 0, 20);
	}
	ok(!s->failed, "works again");
	lab_end(&l);
}

static void memory(void)
{
	struct lab_stream *s;

	l = (struct lab){ 0 };
	lab_start(&l);
	for (int i = 0; i < 300; i++) {
		s = lab_run(&l, &(struct lab_prog){ .cmd = "true" });
		if (s->failed)
			break;
		lab_until(&l, s->exited);
	}
	ok(!s->failed, "many short programs");
	s = lab_sh(&l, "root", "ls /proc | grep -c '^[0-9]'");
	ok(strtol(s->text, NULL, 10) <= 5, "none is left behind");
	s = lab_sh(&l, "root", "grep RssAnon /proc/1/status | tr -dc 0-9");
	ok(LAB_ROOMY || strtol(s->text, NULL, 10) < 600, "PID 1 stays small: %s KiB", s->text);
	lab_end(&l);
}

int main(void)
{
	l = (struct lab){ 0 };
	if (!lab_start(&l)) {
		skip("no user namespaces here");
		return done_testing();
	}
	lab_end(&l);
	processes();
	descriptors();
	memory();
	return done_testing();
}
