/* perfclient -- a client at C speed for the benchmarks: blocking sockets, one thread a connection, JSON lines of results.
 *
 *   perfclient first URL KEY N          create, exec echo, first byte of output seen, kill; in turn with fork + exec of echo, first byte
 *   perfclient exec URL KEY N           exec of true in one running sandbox; in turn with fork + exec + wait of true
 *   perfclient burst URL KEY N          N creates at once: each one's latency
 *   perfclient rate URL KEY SECONDS C   sandboxes created, used and killed per second over C connections
 *   perfclient idle URL KEY N           N idle sandboxes: create latency along the way, then waits for a line on stdin, then kills
 *   perfclient cycles URL KEY N C       N create/kill cycles over C connections
 * Result: one JSON object on stdout: {"us":[…]} sorted samples, or counts. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in server;
static const char *key;

static void die(const char *what)
{
	fprintf(stderr, "perfclient: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* One keep-alive connection. */
struct conn { int fd; char in[65536]; size_t len; };

static void conn_open(struct conn *c)
{
	int one = 1;
	c->len = 0;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&server, sizeof server) < 0)
		die("connect");
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void conn_fill(struct conn *c)
{
	ssize_t n = read(c->fd, c->in + c->len, sizeof c->in - 1 - c->len);
	if (n <= 0)
		die("server closed the connection");
	c->len += (size_t)n;
	c->in[c->len] = 0;
}

static void conn_drop(struct conn *c, size_t n)
{
	memmove(c->in, c->in + n, c->len - n);
	c->len -= n;
	c->in[c->len] = 0;
}

static void conn_send(struct conn *c, const char *method, const char *path, const char *body)
{
	char req[4096];
	int n = snprintf(req, sizeof req, "%s %s HTTP/1.1\r\nHost: %s:%u\r\nX-API-KEY: %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			 method, path, "127.0.0.1", ntohs(server.sin_port), key, strlen(body), body);
	if (n <= 0 || (size_t)n >= sizeof req || write(c->fd, req, (size_t)n) != n)
		die("send request");
}

/* Reads the whole answer into out (cut at size). *first_us: when the text `mark` was first seen in the body (0: never). */
static int conn_answer(struct conn *c, char *out, size_t size, const char *mark, double *first_us)
{
	char *end, *p;
	size_t got = 0;
	int status;

	while (!(end = strstr(c->in, "\r\n\r\n")))
		conn_fill(c);
	status = atoi(c->in + 9);
	*end = 0;
	p = strcasestr(c->in, "\r\nContent-Length:");
	bool chunked = strcasestr(c->in, "\r\nTransfer-Encoding: chunked") != NULL;
	size_t want = p ? strtoul(p + 17, NULL, 10) : 0;
	conn_drop(c, (size_t)(end - c->in) + 4);
	out[0] = 0;
	for (;;) {
		if (chunked) {
			while (!(end = strstr(c->in, "\r\n")))
				conn_fill(c);
			want = strtoul(c->in, NULL, 16);
			conn_drop(c, (size_t)(end - c->in) + 2);
		}
		while (c->len < want + (chunked ? 2 : 0))
			conn_fill(c);
		size_t take = want < size - 1 - got ? want : size - 1 - got;
		memcpy(out + got, c->in, take);
		got += take;
		out[got] = 0;
		conn_drop(c, want + (chunked ? 2 : 0));
		if (first_us && !*first_us && strstr(out, mark))
			*first_us = now_us();
		if (!chunked || want == 0)
			return status;
	}
}

static void expect(int status, int good, const char *what, const char *body)
{
	if (status == good || (good == 200 && status / 100 == 2))
		return;
	fprintf(stderr, "perfclient: %s: HTTP %d %s\n", what, status, body);
	exit(1);
}

static void create(struct conn *c, char id[64])
{
	char body[8192], *p;
	conn_send(c, "POST", "/v1/sandboxes", "{\"template\":\"host\",\"net\":\"none\",\"timeout_ms\":0}");
	expect(conn_answer(c, body, sizeof body, NULL, NULL), 200, "create", body);
	p = strstr(body, "\"id\":");
	if (!p || sscanf(p + 5, " \"%63[a-z0-9]\"", id) != 1)
		expect(0, 200, "create: no id", body);
}

static double run(struct conn *c, const char *id, const char *cmd)
{
	char path[128], body[8192];
	double first = 0;
	snprintf(path, sizeof path, "/v1/sandboxes/%s/exec", id);
	conn_send(c, "POST", path, cmd);
	expect(conn_answer(c, body, sizeof body, "\"stdout\"", &first), 200, "exec", body);
	if (!strstr(body, "\"end\"") || !strstr(body, "\"code\":0"))
		expect(0, 200, "exec did not end well", body);
	return first;
}

static void kill_sandbox(struct conn *c, const char *id)
{
	char path[128], body[8192];
	snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
	conn_send(c, "DELETE", path, "");
	expect(conn_answer(c, body, sizeof body, NULL, NULL), 200, "kill", body);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print_samples(const char *name, double *v, size_t n, bool sorted)
{
	if (sorted)
		qsort(v, n, sizeof *v, by_value);
	printf("\"%s\":[", name);
	for (size_t i = 0; i < n; i++)
		printf("%s%.0f", i ? "," : "", v[i]);
	printf("]");
}

/* fork + exec of the program: microseconds until its end, and until its first byte of output (0: it wrote none). */
static double floor_once(char *const *argv, double *ret_first)
{
	int p[2], st;
	char b;
	if (pipe(p) < 0)
		die("pipe");
	double t = now_us();
	pid_t pid = fork();
	if (pid == 0) {
		dup2(p[1], 1);
		close(p[0]);
		close(p[1]);
		execv(argv[0], argv);
		_exit(127);
	}
	close(p[1]);
	ssize_t r = read(p[0], &b, 1);
	*ret_first = r == 1 ? now_us() - t : 0;
	if (waitpid(pid, &st, 0) < 0 || st)
		die("floor program failed");
	double done = now_us() - t;
	close(p[0]);
	return done;
}

/* A pool refills meanwhile: this is about latency, `rate` is about throughput. The floor rests as long as we do: after a rest
 * caches are cold and cores asleep for both. */
static void rest(void)
{
	usleep(60000);
}

static int do_first(int n)
{
	static char *const echo[] = { "/bin/echo", "hi", NULL };
	struct conn c;
	char id[64];
	double *made = calloc((size_t)n, sizeof *made), *first = calloc((size_t)n, sizeof *first), *floor = calloc((size_t)n, sizeof *floor);
	conn_open(&c);
	for (int i = 0; i < n; i++) {
		rest();
		floor_once(echo, &floor[i]);
		rest();
		double t = now_us();
		create(&c, id);
		made[i] = now_us() - t;
		first[i] = run(&c, id, "{\"cmd\":\"/bin/echo\",\"args\":[\"hi\"]}") - t;
		kill_sandbox(&c, id);
	}
	printf("{");
	print_samples("create", made, (size_t)n, true);
	printf(",");
	print_samples("first", first, (size_t)n, true);
	printf(",");
	print_samples("floor", floor, (size_t)n, true);
	printf("}\n");
	return 0;
}

static int do_exec(int n)
{
	static char *const yes[] = { "/bin/true", NULL };
	struct conn c;
	char id[64];
	double *us = calloc((size_t)n, sizeof *us), *floor = calloc((size_t)n, sizeof *floor), none;
	conn_open(&c);
	create(&c, id);
	for (int i = -5; i < n; i++) {
		double f = floor_once(yes, &none);
		double t = now_us();
		run(&c, id, "{\"cmd\":\"/bin/true\"}");
		if (i >= 0) {
			us[i] = now_us() - t;
			floor[i] = f;
		}
	}
	kill_sandbox(&c, id);
	printf("{");
	print_samples("us", us, (size_t)n, true);
	printf(",");
	print_samples("floor", floor, (size_t)n, true);
	printf("}\n");
	return 0;
}

static atomic_int left, done_count;
static double stop_at;
static pthread_barrier_t barrier;

static void *burst_one(void *arg)
{
	struct conn *c = malloc(sizeof *c);
	char id[64];
	double *us = arg, t;
	conn_open(c);
	pthread_barrier_wait(&barrier);
	t = now_us();
	create(c, id);
	*us = now_us() - t;
	pthread_barrier_wait(&barrier);
	kill_sandbox(c, id);
	return NULL;
}

static void *worker(void *arg)
{
	struct conn *c = malloc(sizeof *c);
	char id[64];
	bool use = arg != NULL;
	conn_open(c);
	while (stop_at > 0 ? now_us() < stop_at : atomic_fetch_sub(&left, 1) > 0) {
		create(c, id);
		if (use)
			run(c, id, "{\"cmd\":\"/bin/true\"}");
		kill_sandbox(c, id);
		atomic_fetch_add(&done_count, 1);
	}
	return NULL;
}

static void threads(int n, void *(*fn)(void *), void *arg, size_t step)
{
	pthread_t *t = calloc((size_t)n, sizeof *t);
	for (int i = 0; i < n; i++)
		if ((errno = pthread_create(&t[i], NULL, fn, arg ? (char *)arg + (size_t)i * step : NULL)))
			die("thread");
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static int do_burst(int n)
{
	double *us = calloc((size_t)n, sizeof *us);
	pthread_barrier_init(&barrier, NULL, (unsigned)n);
	threads(n, burst_one, us, sizeof *us);
	printf("{");
	print_samples("us", us, (size_t)n, true);
	printf("}\n");
	return 0;
}

static int do_rate(double seconds, int conns, bool use)
{
	char yes = 1;
	double t = now_us();
	stop_at = seconds > 0 ? t + seconds * 1e6 : 0;
	threads(conns, worker, use ? &yes : NULL, 0);
	t = (now_us() - t) / 1e6;
	printf("{\"count\":%d,\"seconds\":%.3f,\"per_second\":%.1f}\n", done_count, t, done_count / t);
	return 0;
}

static int do_idle(int n)
{
	struct conn c;
	char (*id)[64] = calloc((size_t)n, 64);
	double *us = calloc((size_t)n, sizeof *us);
	conn_open(&c);
	for (int i = 0; i < n; i++) {
		double t = now_us();
		create(&c, id[i]);
		us[i] = now_us() - t;
	}
	printf("{");
	print_samples("us", us, (size_t)n, false);
	printf("}\n");
	fflush(stdout);
	(void)getchar();
	for (int i = 0; i < n; i++)
		kill_sandbox(&c, id[i]);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned port;
	if (argc < 5 || sscanf(argv[2], "http://127.0.0.1:%u", &port) != 1) {
		fprintf(stderr, "usage: perfclient first|exec|burst|idle URL KEY N | rate URL KEY SECONDS CONNS | cycles URL KEY N CONNS\n");
		return 2;
	}
	server = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	key = argv[3];
	int n = atoi(argv[4]);
	if (!strcmp(argv[1], "first"))
		return do_first(n);
	if (!strcmp(argv[1], "exec"))
		return do_exec(n);
	if (!strcmp(argv[1], "burst"))
		return do_burst(n);
	if (!strcmp(argv[1], "idle"))
		return do_idle(n);
	if (!strcmp(argv[1], "rate") && argc == 6)
		return do_rate(atof(argv[4]), atoi(argv[5]), true);
	if (!strcmp(argv[1], "cycles") && argc == 6) {
		left = n;
		return do_rate(0, atoi(argv[5]), false);
	}
	fprintf(stderr, "perfclient: unknown word '%s'\n", argv[1]);
	return 2;
}
