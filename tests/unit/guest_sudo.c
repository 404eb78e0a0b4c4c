/* sudo: another user without a setuid program. */
#include "guest/sudo.h"
#include "tap.h"
#include "guest_lab.h"

static struct lab l;

static void parsing(void)
{
	char *words[] = { (char *)"sudo", (char *)"-E", (char *)"-u", (char *)"bob", (char *)"-n", (char *)"A=1", (char *)"B=2", (char *)"ls", (char *)"-u", (char *)"x=y", NULL };
	char *odd[] = { (char *)"echo", (char *)"a b", (char *)"$HOME;'x'", NULL }, *line;
	char *bad[] = { (char *)"sudo", (char *)"-i", (char *)"-s", NULL };
	struct sudo_args a;

	ok(sudo_parse(10, words, &a) == 0 && a.preserve && a.nvars == 2, "options and variables");
	is_str(a.user, "bob", "user");
	is_str(a.cmd[0], "ls", "command");
	is_str(a.cmd[1], "-u", "its options are its own");
	line = sudo_quote(odd);
	is_str(line, "echo a\\ b $HOME\\;\\'x\\'", "quoted");
	free(line);
	if (!freopen("/dev/null", "w", stderr))
		return;
	ok(sudo_parse(3, bad, &a) < 0, "nonsense");
}

static void basics(void)
{
	struct lab_stream *s;

	s = lab_sh(&l, "", "sudo id -u; echo $?; sudo -u '#1000' id -un; sudo -n -u other id -un; pwd; cd /tmp; sudo pwd");
	is_str(s->text, l.single ? "0\n0\nroot\nroot\n/home/user\n/tmp\n" : "0\n0\nuser\nother\n/home/user\n/tmp\n", "root and others, same folder");
	s = lab_sh(&l, "", "export X=1 Y=2; sudo sh -c 'echo $X $HOME $USER $SUDO_USER $PATH'; sudo -E sh -c 'echo $X $Y'; sudo --preserve-env=Y sh -c 'echo $X$Y'; sudo Z=3 sh -c 'echo $Z'");
	is_str(s->text, l.single ? "/root root root /run/bin:/usr/sbin:/usr/bin\n1 2\n2\n3\n" :
		"/root root user /run/bin:/usr/sbin:/usr/bin\n1 2\n2\n3\n", "environment");
	s = lab_sh(&l, "", "echo in | sudo cat; sudo sh -c 'echo err >&2; exit 7'; echo $?; sudo sh -c 'kill -TERM $$'; echo $?; sudo no-such; echo $?; sudo -u nobody-here true; echo $?");
	is_str(s->text, "in\n7\n143\n127\n1\n", "stdin, exit codes");
	ok(strstr(s->err, "err\n") && strstr(s->err, "sudo: no program 'no-such'"), "stderr");
	s = lab_sh(&l, "", "sudo -v && sudo -k && sudo -l >/dev/null && sudo -s echo 'a  b' && sudo -i pwd && sudo -i echo 'y  z'; sudo");
	is_str(s->text, "a  b\n/root\ny  z\n", "-v -k -l -s -i");
	ok(strstr(s->err, "usage: sudo") && s->exit_code == 1, "nothing to do");
	s = lab_sh(&l, "", "sudo touch /var/made && stat -c %u /var/made");
	is_str(s->text, "0\n", "root's rights");
	if (!l.single) {
		s = lab_sh(&l, "other", "sudo id -u; echo $?");
		is_str(s->text, "1\n", "not for everybody");
		s = lab_sh(&l, "", "sudo -u user grep CapEff /proc/self/status");
		is_str(s->text, "CapEff:\t0000000000000000\n", "a user has no capabilities by it");
	}
}

static void kill_client(struct lab_stream *s)
{
	struct msg_writer w;
	struct lab_stream *q = lab_about(&l, &w, G_SIGNAL, s->pid, "");

	msg_put_u32(&w, SIGKILL);
	msg_put_u8(&w, 1);
	lab_call(&l, q, &w);
	lab_until(&l, s->exited);
}

static void signals(void)
{
	struct lab_stream *s, *q;
	struct msg_writer w;

	s = lab_run(&l, &(struct lab_prog){ .cmd = "sudo", .args = { "sh", "-c", "trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.05; done" } });
	lab_until(&l, s->n);
	q = lab_about(&l, &w, G_SIGNAL, s->pid, "");
	msg_put_u32(&w, SIGTERM);
	msg_put_u8(&w, 0);
	lab_call(&l, q, &w);
	lab_until(&l, s->exited);
	is_str(s->text, "up\ngot\n", "a signal is passed on");
	ok(s->how == GUEST_EXITED && s->exit_code == 9, "and the exit comes back");
	s = lab_run(&l, &(struct lab_prog){ .cmd = "sudo", .args = { "sleep", "1234" } });
	for (int i = 0; i < 100; i++) {
		q = lab_sh(&l, "root", "grep -lz '^1234$' /proc/[0-9]*/cmdline | wc -l");
		if (q->text[0] != '0' && q->text[0] != '1')
			break;
	}
	kill_client(s);
	/* at any moment of its start */
	for (int i = 0; i < 24; i++) {
		s = lab_run(&l, &(struct lab_prog){ .cmd = "sudo", .args = { "sleep", "1234" } });
		for (int64_t t0 = clock_mono_ms(); clock_mono_ms() - t0 < i / 2;)
			lab_turn(&l, 1);
		kill_client(s);
	}
	for (int i = 0; i < 200; i++) {
		q = lab_sh(&l, "root", "cat /proc/[0-9]*/comm | grep -c '^sleep$'");
		if (q->text[0] == '0')
			break;
	}
	if (!is_str(q->text, "0\n", "a killed client takes its program along"))
		printf("# who runs:\n%s\n", lab_sh(&l, "root", "sed 's/^/# /' /proc/[0-9]*/stat | cut -c1-80")->text);
}

static void type(struct lab_stream *s, const char *text)
{
	struct msg_writer w;
	struct lab_stream *q = lab_about(&l, &w, G_INPUT, s->pid, "");

	msg_put_u8(&w, 1);
	msg_put_bytes(&w, text, strlen(text));
	lab_call(&l, q, &w);
}

/* Types a command that runs `sleep` and waits until it does: a control character typed before would throw the line away. */
static void type_sleep(struct lab_stream *s, const char *text)
{
	type(s, text);
	for (int i = 0; i < 200; i++)
		if (lab_sh(&l, "root", "cat /proc/[0-9]*/comm | grep -c '^sleep$'")->text[0] != '0')
			return;
}

/* Typed again until it shows: the program may not have the terminal yet. */
static void type_until(struct lab_stream *s, const char *text, const char *what)
{
	for (int i = 0; i < 50 && !strstr(s->text, what) && !s->exited; i++) {
		type(s, text);
		/* long enough that a control character is hardly ever typed twice: a late one throws away the next line */
		for (int64_t t0 = clock_mono_ms(); !strstr(s->text, what) && clock_mono_ms() - t0 < 400;)
			lab_turn(&l, 20);
	}
}

#define sees(s, what, name) do { \
	lab_until(&l, strstr((s)->text, (what)) || (s)->exited); \
	if (!ok(strstr((s)->text, (what)) != NULL, "%s", name)) \
		printf("# %s\n", (s)->text); \
	(s)->n = 0; (s)->text[0] = '\0'; \
} while (0)

static void terminal(void)
{
	struct lab_stream *s = lab_run(&l, &(struct lab_prog){ .cmd = "bash", .args = { "--norc", "-i" }, .flags = GS_PTY, .cols = 90, .rows = 20, .envs = { "PS1=$ ", "TERM=dumb" } });

	sees(s, "$ ", "a shell");
	type(s, "sudo bash --norc\r");
	sees(s, "# ", "a root shell on a terminal");
	type(s, "id -u; stty size; tty\r");
	sees(s, "0\r\n20 90\r\n/dev/pts/", "which is root's, with its size");
	type_sleep(s, "sleep 50\r");
	type_until(s, "\003", "^C");
	type_until(s, "echo x$((40+2))\r", "x42");
	sees(s, "x42", "Ctrl-C reaches it");
	type_sleep(s, "sleep 51\r");
	type_until(s, "\032", "Stopped");
	sees(s, "Stopped", "Ctrl-Z inside");
	/* a shell that still knows of a stopped job says "exit", and stays */
	type_until(s, "kill %1; [ -z \"$(jobs)\" ] && echo none$((50+1))\r", "none51");
	sees(s, "none51", "ended by its shell");
	/* once: a second one would end the first shell too */
	type(s, "exit 5\r");
	sees(s, "exit\r\n", "leaves");
	type_until(s, "echo code $((40+$?))\r", "code 4");
	sees(s, "code 4", "back in the first shell");
	type_until(s, "stty -a | grep -o -- '-*icanon'\r", "\r\nicanon");
	sees(s, "\r\nicanon", "whose terminal is as before");
	type_sleep(s, "sudo sleep 60\r");
	type_until(s, "\032", "Stopped");
	sees(s, "Stopped", "a stopped program stops its client");
	type_until(s, "fg\r", "sudo sleep 60\r\n");
	sees(s, "sudo sleep 60\r\n", "goes on");
	type_until(s, "\003", "$ ");
	type_until(s, "echo rc $((1000+2))\r", "rc 1002");
	sees(s, "rc 1002", "and ends by Ctrl-C");
	type(s, "exit\r");
	lab_until(&l, s->exited);
}

int main(void)
{
	struct msg_writer w;
	struct lab_stream *s;
	const char *const env = "PATH=/run/bin:/usr/sbin:/usr/bin";

	parsing();
	if (!lab_start(&l)) {
		skip("no user namespaces here");
		return done_testing();
	}
	s = lab_begin(&l, &w, G_CONFIGURE);
	msg_put_str(&w, "i0123456789"), msg_put_str(&w, ""), msg_put_strv(&w, &env, 1), msg_put_u64(&w, 0);
	lab_call(&l, s, &w);
	basics();
	signals();
	terminal();
	lab_end(&l);
	return done_testing();
}
