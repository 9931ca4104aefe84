/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real memory server by TLS, with tenants' keys and with certificates: what an observer does not
 * see, and what those try who are between, or are not who they say.  Whoever is refused disturbs
 * nobody: in each case a client that came by TLS works on.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/peer.h"
#include "lib/proc.h"
#include "relay.h"
#include "trust/proof.h"
#include "trust/tenants_file.h"

#define MIB (1ull << 20)
#define PAGE 4096u
#define MARK "a-name-that-nobody-is-to-see"

static char dir[64], file[96], key_path[96];
static uint8_t root[SODA_KEY_BYTES];
static struct server server;
static struct soda_identity *plain, *by_key; /* tenant physics, without and by TLS */
static struct peer worker;
static struct soda_mr worker_mr;

/* What everybody has */

static struct soda_identity *identity_of(enum soda_tls_mode mode, const char *certificates,
					 bool with_key, const char *server_name)
{
	struct soda_conf_error err = { "" };
	struct soda_identity *identity = NULL;

	if (with_key &&
	    soda_identity_load(NULL, key_path, server_name, "tcp://127.0.0.1:1", &identity, &err))
		fail_msg("%s", err.text);
	if (soda_identity_encrypt(mode, certificates, server_name, "tcp://127.0.0.1:1", &identity,
				  &err))
		fail_msg("%s", err.text);
	return identity;
}

static void make_tenant(void)
{
	struct soda_tenants_file content = { .server = "mem1" };
	struct soda_tenant_entry *entry;
	char text[256], hex[SODA_KEY_TEXT_BYTES], export[96];
	struct soda_conf_error err;
	int n;

	assert_int_equal(soda_random(root, sizeof(root)), 0);
	n = snprintf(text, sizeof(text), "[tenant]\nname = physics\nkey = %s\n",
		     soda_key_format(root, sizeof(root), hex));
	assert_int_equal(soda_private_write(key_path, text, (size_t)n, &err), 0);
	assert_int_equal(soda_tenants_file_add(&content, "physics", &entry, &err), 0);
	assert_int_equal(soda_key_for_server(root, "mem1", entry->key), 0);
	snprintf(export, sizeof(export), "rw %s", dir);
	assert_int_equal(soda_tenant_export_add(entry, export, &err), 0);
	assert_int_equal(soda_tenants_file_write(file, &content, &err), 0);
	soda_tenants_file_free(&content);
}

static void check_worker(uint8_t value)
{
	static uint8_t page[PAGE], got[PAGE];

	memset(page, value, sizeof(page));
	assert_int_equal(peer_write(&worker, &worker_mr, PAGE, page, PAGE), 0);
	assert_int_equal(peer_read(&worker, &worker_mr, PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
	assert_int_equal(peer_call(&worker, SODA_MSG_SYNC, 1), 0);
}

static void begin(const char *mode)
{
	make_tenant();
	assert_int_equal(SERVER_START(&server, "--listen", "tcp://127.0.0.1:0", "--tenants", file,
				      "--tls", mode, "--capacity", "64M", "--log-level", "debug"),
			 0);
	plain = identity_of(SODA_TLS_OFF, NULL, true, "mem1");
	by_key = identity_of(SODA_TLS_REQUIRE, NULL, true, "mem1");
	if (peer_join_as(&worker, server.address, by_key))
		fail_msg("%s", worker.why.text);
	assert_int_equal(peer_open(&worker, 1, NULL, 4 * MIB, 0, &worker_mr, NULL), 0);
	check_worker(1);
}

static void end(void)
{
	check_worker(0xee);
	soda_conn_unmap_region(&worker_mr);
	peer_leave(&worker);
	soda_identity_free(plain);
	soda_identity_free(by_key);
	assert_int_equal(server_stop(&server), 0);
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
}

static int join(struct peer *peer, const struct soda_identity *identity)
{
	int r = peer_join_as(peer, server.address, identity);

	if (!r)
		peer_leave(peer);
	return r;
}

/* One client through a relay that changes these bytes, which opens a file of a name; its outcome.
 */
static int by_relay(struct relay *r, const struct soda_identity *as, size_t flip_said,
		    size_t flip_heard, struct soda_why *why)
{
	struct soda_mr mr;
	struct peer peer;
	int ret;

	relay_begin(r, server.address, flip_said, flip_heard);
	ret = peer_join_as(&peer, r->address, as);
	if (!ret)
		ret = peer_open(&peer, 2, MARK, 0, SODA_WIRE_READ_ONLY, &mr, NULL);
	*why = peer.why;
	peer_vanish(&peer);
	relay_end(r);
	return ret;
}

/* Cases */

/* An observer sees neither names nor keys; without TLS the same observer sees the names. */
static void hides(void **state)
{
	struct relay r;
	struct soda_why why;

	begin("on");
	assert_int_equal(by_relay(&r, plain, 0, 0, &why), -ENOENT);
	assert_true(relay_saw(&r, MARK, strlen(MARK)) && relay_saw(&r, "physics", 7));
	assert_int_equal(by_relay(&r, by_key, 0, 0, &why), -ENOENT);
	assert_true(r.said_n > 400 && r.heard_n > 200);
	assert_false(relay_saw(&r, MARK, strlen(MARK)));
	assert_false(relay_saw(&r, "physics", 7));
	assert_false(relay_saw(&r, by_key->key, 16));
	assert_false(relay_saw(&r, root, 16));
	/* the first bytes tell */
	assert_true(soda_tls_begins(r.said[0]) && soda_tls_begins(r.heard[0]));
	end();
}

/* It comes back by its key, and long calls come through whole. */
static void serves(void **state)
{
	struct peer again;
	static char text[SODA_WIRE_MAX_CONTROL];
	size_t n = 0;

	begin("on");
	peer_vanish(&worker);
	assert_int_equal(peer_return_as(&again, server.address, by_key, &worker, 2), 0);
	assert_int_equal(again.welcome.known, 1);
	worker = again;
	for (int i = 0; i < 50; i++) {
		assert_int_equal(soda_conn_call(worker.control, SODA_MSG_STATS, NULL, 0, text,
						sizeof(text), &n, PEER_TIMEOUT_MS, &worker.why),
				 0);
		assert_true(n > 1000 && text[0] == '{' && text[n - 1] == '}');
	}
	end();
}

static void refuses_downgrade(void **state)
{
	struct soda_why why;
	struct relay r;
	struct peer peer;
	int fd;

	begin("require");
	/* the server takes nothing else */
	assert_int_equal(join(&peer, plain), -EACCES);
	assert_non_null(strstr(peer.why.text, "by TLS only"));
	assert_true(server_logs(&server, "control connections to this server are by TLS only"));
	assert_int_equal(peer_join(&peer, server.address), -EACCES);
	/* data connections need no TLS on this machine, and do not come by it */
	check_worker(2);
	/* nor does a client that wants TLS say a word without it, whoever answers */
	assert_int_equal(by_relay(&r, by_key, 0, 1, &why), -EACCES);
	assert_false(relay_saw(&r, "physics", 7));
	/* a port check is no offence, and half a record no reason to wait */
	fd = relay_dial(server.address);
	assert_int_equal(send(fd, "\x16\x03\x01\x02", 4, MSG_NOSIGNAL), 4);
	assert_int_equal(join(&peer, by_key), 0);
	close(fd);
	assert_true(server_logs(&server, "closed within its TLS handshake"));
	end();
}

/* A server without TLS, and one that answers in plain SODA: the client goes no further. */
static void client_refuses_plain(void **state)
{
	struct server other;
	struct peer peer;

	begin("on");
	assert_int_equal(SERVER_START(&other, "--tenants", file, "--capacity", "64M", "--log-level",
				      "debug"),
			 0);
	assert_int_equal(peer_join_as(&peer, other.address, by_key), -EACCES);
	assert_non_null(strstr(peer.why.text, "does not speak TLS"));
	assert_int_equal(server_stop(&other), 0);
	assert_non_null(strstr(server_log(&other), "TLS is not served here"));
	server_forget(&other);
	/* where TLS is on, and not required, there is a way without */
	assert_int_equal(join(&peer, plain), 0);
	end();
}

static void refuses_keys(void **state)
{
	struct soda_identity forged;
	struct soda_identity *elsewhere;
	struct peer peer;

	begin("on");
	/* the id of the right key, without the key */
	forged = *by_key;
	forged.key[0] ^= 1;
	assert_int_equal(join(&peer, &forged), -EACCES);
	assert_true(server_logs(&server, "TLS: no handshake"));
	/* a key that nobody has here; and of the same tenant, for another server */
	forged.key_id[0] ^= 1;
	assert_int_equal(join(&peer, &forged), -EACCES);
	assert_true(server_logs(&server, "TLS: no tenant has this key"));
	elsewhere = identity_of(SODA_TLS_ON, NULL, true, "mem2");
	assert_int_equal(join(&peer, elsewhere), -EACCES);
	assert_non_null(strstr(peer.why.text, "has not the key"));
	soda_identity_free(elsewhere);
	end();
}

static void refuses_replay_and_changes(void **state)
{
	uint8_t heard[4096];
	struct soda_why why;
	struct relay r, all;
	ssize_t n, heard_n = 0;
	int fd;

	begin("require");
	assert_int_equal(by_relay(&all, by_key, 0, 0, &why), -ENOENT);
	/* all that the client has said, once more: an answer to the hello, then an alert (21) */
	fd = relay_dial(server.address);
	assert_int_equal(send(fd, all.said, all.said_n, MSG_NOSIGNAL), all.said_n);
	while ((n = recv(fd, heard + heard_n, sizeof(heard) - (size_t)heard_n, 0)) > 0)
		heard_n += n;
	close(fd);
	assert_true(heard_n > 0 && (size_t)heard_n < all.heard_n);
	/* any byte of the connection, of either side */
	for (size_t at = 1; at < all.said_n; at += all.said_n / 12) {
		int ret = by_relay(&r, by_key, at, 0, &why);

		assert_true(ret < 0 && ret != -ENOENT);
	}
	for (size_t at = 1; at < all.heard_n; at += all.heard_n / 12) {
		int ret = by_relay(&r, by_key, 0, at, &why);

		assert_true(ret < 0 && ret != -ENOENT);
	}
	end();
}

/* Those who begin and say no more cost nobody else anything, and go after the HELLO time-out. */
static void outlasts_silence(void **state)
{
	static const uint8_t hello[] = { 22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3 };
	struct peer peer;
	int fds[64];
	char byte;

	begin("require");
	for (size_t i = 0; i < 64; i++) {
		fds[i] = relay_dial(server.address);
		assert_int_equal(send(fds[i], hello, 1 + i % sizeof(hello), MSG_NOSIGNAL),
				 1 + i % sizeof(hello));
	}
	for (int i = 0; i < 8; i++)
		assert_int_equal(join(&peer, by_key), 0);
	check_worker(3);
	for (size_t i = 0; i < 64; i++) {
		while (recv(fds[i], &byte, 1, 0) > 0)
			;
		close(fds[i]);
	}
	assert_true(server_logs(&server, "no HELLO within the time-out"));
	end();
}

/* Certificates */

static int make_certificates(const char *name)
{
	char command[1024];

	/* DIR/NAME: of an authority of its own, for the server's name "mem1" */
	snprintf(command, sizeof(command),
		 "set -e; mkdir %s/%s; cd %s/%s; exec 2>/dev/null\n"
		 "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
		 " -subj /CN=authority -keyout ca.key -out ca.pem\n"
		 "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=x"
		 " -keyout key.pem -out csr\n"
		 "echo subjectAltName=DNS:mem1,IP:127.0.0.1 >ext\n"
		 "openssl x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
		 " -extfile ext -out cert.pem\n"
		 "chmod 600 key.pem",
		 dir, name, dir, name);
	return system(command);
}

static int ask(const struct server *whom, const char *certificates, const char *name, bool with_key,
	       struct peer *peer)
{
	struct soda_identity *as = identity_of(SODA_TLS_REQUIRE, certificates, with_key, name);
	int r = peer_join_as(peer, whom->address, as);

	if (!r)
		peer_leave(peer);
	soda_identity_free(as);
	return r;
}

/* Two authorities, with a certificate of each. */
static void make_both(const char *one, const char *other)
{
	if (system("openssl version >/dev/null 2>&1")) {
		printf("SKIP: no openssl program to make certificates with\n");
		skip();
	}
	assert_int_equal(make_certificates(one), 0);
	assert_int_equal(make_certificates(other), 0);
}

static void certifies(void **state)
{
	char ours[96], theirs[96], path[128], command[512];
	const char *url;
	struct server open, guarded, agent;
	struct soda_wire_welcome welcome;
	struct soda_conn *conn;
	struct program p;
	struct peer peer;

	make_both("ours", "theirs");
	snprintf(ours, sizeof(ours), "%s/ours", dir);
	snprintf(theirs, sizeof(theirs), "%s/theirs", dir);
	make_tenant();
	assert_int_equal(SERVER_START(&open, "--tls", "require", "--tls-certificates", ours,
				      "--capacity", "64M", "--metrics", "127.0.0.1:0",
				      "--log-level", "debug"),
			 0);
	/* for its name, for its address; not for another, nor of another authority */
	assert_int_equal(ask(&open, ours, "mem1", false, &peer), 0);
	assert_int_equal(ask(&open, ours, "127.0.0.1", false, &peer), 0);
	assert_int_equal(ask(&open, ours, "mem2", false, &peer), -EACCES);
	assert_non_null(strstr(peer.why.text, "not that of the server \"mem2\""));
	assert_int_equal(ask(&open, theirs, "mem1", false, &peer), -EACCES);
	assert_non_null(strstr(peer.why.text, "not that of the server \"mem1\""));
	assert_int_equal(peer_join(&peer, open.address), -EACCES);
	/* an agent before it, with both sides by TLS; and a program that moves data or messages */
	assert_int_equal(
		agent_start(&agent,
			    (const char *const[]){ "--listen", "tcp://127.0.0.1:0", "--server",
						   open.address, "--server-name", "mem1", "--tls",
						   "require", "--tls-certificates", ours, NULL }),
		0);
	assert_int_equal(ask(&agent, ours, "mem1", false, &peer), 0);
	assert_int_equal(ask(&agent, theirs, "mem1", false, &peer), -EACCES);
	assert_int_equal(soda_conn_join(agent.address, 0, &conn, &welcome, &peer.why), -EACCES);
	assert_non_null(strstr(peer.why.text, "by TLS only"));
	setenv("SODA_TLS", "require", 1);
	assert_int_equal(soda_conn_join(agent.address, 0, &conn, &welcome, &peer.why), -EINVAL);
	setenv("SODA_TLS_CERTIFICATES", ours, 1);
	assert_int_equal(soda_conn_join(agent.address, 0, &conn, &welcome, &peer.why), 0);
	soda_conn_leave(conn, 0);
	unsetenv("SODA_TLS");
	unsetenv("SODA_TLS_CERTIFICATES");
	assert_int_equal(server_stop(&agent), 0);
	server_forget(&agent);
	/* the metrics, too */
	url = strstr(server_log(&open), "https://");
	if (!url)
		fail_msg("%s", server_log(&open));
	snprintf(command, sizeof(command),
		 "python3 -c \"import ssl,sys,urllib.request as u;"
		 " c=ssl.create_default_context(cafile='%s/ca.pem');"
		 " sys.exit(b'soda_mem_server' not in u.urlopen('%.*s',context=c).read())\"",
		 ours, (int)strcspn(url, "\n"), url);
	assert_int_equal(system(command), 0);
	assert_int_equal(server_stop(&open), 0);
	server_forget(&open);
	/* with tenants: the proof of the key is inside, and counts */
	assert_int_equal(SERVER_START(&guarded, "--tls", "require", "--tls-certificates", ours,
				      "--tenants", file, "--capacity", "64M"),
			 0);
	assert_int_equal(ask(&guarded, ours, "mem1", true, &peer), 0);
	assert_int_equal(ask(&guarded, NULL, "mem1", true, &peer), 0);
	assert_int_equal(ask(&guarded, ours, "mem1", false, &peer), -EACCES);
	assert_non_null(strstr(peer.why.text, "SODA_KEY_FILE"));
	assert_int_equal(server_stop(&guarded), 0);
	server_forget(&guarded);
	/* a key that others can read */
	snprintf(path, sizeof(path), "%s/key.pem", ours);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(program_run("src/mem_server/soda-mem-server",
				     (const char *const[]){ "--tls", "on", "--tls-certificates",
							    ours, NULL },
				     &p),
			 0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "others than its owner can use this file"));
}

/* Scrape the metrics by https, with these roots. Whether that succeeds. */
static bool scrape(const struct server *whom, const char *certificates)
{
	const char *url = strstr(server_log(whom), "https://");
	char command[512];

	if (!url)
		fail_msg("%s", server_log(whom));
	snprintf(command, sizeof(command),
		 "python3 -c \"import ssl,sys,urllib.request as u;"
		 " c=ssl.create_default_context(cafile='%s/ca.pem');"
		 " sys.exit(b'soda_mem_server' not in u.urlopen('%.*s',context=c).read())\""
		 " 2>/dev/null",
		 certificates, (int)strcspn(url, "\n"), url);
	return system(command) == 0;
}

static void put_certificates(const char *from, const char *to)
{
	char command[512];

	snprintf(command, sizeof(command),
		 "cd %s && for file in cert.pem key.pem ca.pem; do"
		 " cp -p %s/$file %s/next && mv %s/next %s/$file || exit 1; done",
		 dir, from, to, to, to);
	assert_int_equal(system(command), 0);
}

/* A signal, and the line that answers it. */
static void hang_up(const struct server *whom, const char *line)
{
	assert_int_equal(kill(whom->pid, SIGHUP), 0);
	assert_true(server_logs(whom, line));
}

/*
 * Certificates that are replaced count from SIGHUP on, and disturb nobody; those that cannot be
 * used change nothing.  A client reads what it believes again, before it connects anew.
 */
static void renews(void **state)
{
	char ours[96], theirs[96], used[96], path[256];
	struct soda_identity *stays;
	struct server open;
	struct peer peer, early;

	make_both("before", "after");
	snprintf(ours, sizeof(ours), "%s/before", dir);
	snprintf(theirs, sizeof(theirs), "%s/after", dir);
	snprintf(used, sizeof(used), "%s/used", dir);
	assert_int_equal(mkdir(used, 0700), 0);
	put_certificates("before", "used");
	assert_int_equal(SERVER_START(&open, "--tls", "require", "--tls-certificates", used,
				      "--capacity", "64M", "--metrics", "127.0.0.1:0",
				      "--log-level", "debug"),
			 0);
	stays = identity_of(SODA_TLS_REQUIRE, used, false, "mem1");
	assert_int_equal(peer_join_as(&early, open.address, stays), 0);
	assert_true(scrape(&open, ours));
	put_certificates("after", "used");
	assert_int_equal(ask(&open, ours, "mem1", false, &peer), 0); /* nobody has said so */
	hang_up(&open, "SIGHUP: certificates: read again");
	assert_int_equal(ask(&open, theirs, "mem1", false, &peer), 0);
	assert_int_equal(ask(&open, ours, "mem1", false, &peer), -EACCES);
	assert_true(scrape(&open, theirs));
	assert_false(scrape(&open, ours));
	/* the connection of before, and the same client's next one */
	assert_int_equal(peer_call(&early, SODA_MSG_CLOSE, 9), -EINVAL);
	assert_int_equal(peer_join_as(&peer, open.address, stays), -EACCES);
	assert_int_equal(soda_identity_refresh(stays), 0);
	assert_int_equal(peer_join_as(&peer, open.address, stays), 0);
	peer_leave(&peer);
	peer_leave(&early);
	/* a key that is not the certificate's */
	snprintf(path, sizeof(path), "cp -p %s/key.pem %s/key.pem", ours, used);
	assert_int_equal(system(path), 0);
	hang_up(&open, "the certificates that were read before are used on");
	assert_int_equal(ask(&open, theirs, "mem1", false, &peer), 0);
	assert_true(scrape(&open, theirs));
	soda_identity_free(stays);
	assert_int_equal(server_stop(&open), 0);
	assert_int_equal(server_complaints(&open), 1);
	server_forget(&open);
}

/* Two machines: network namespaces with a cable between them. */

#define THERE "tcp://10.213.77.1:7001"

/* A program that needs fabric memory. */
static int run_there(bool seals)
{
	static const char *const python[] = {
		"run",	       "--server",
		THERE,	       "--quiet",
		"--mem",       "16M",
		"--threshold", "1M",
		"--",	       "python3",
		"-c",	       "b=bytearray(64<<20); b[::4096]=b'x'*16384; print(b.count(b'x'))",
		NULL
	};
	char why[SODA_TLS_WHY];
	struct program p;

	setenv("SODA_TLS", "require", 1);
	setenv("SODA_KEY_FILE", key_path, 1);
	setenv("SODA_SERVER_NAME", "mem1", 1);
	setenv("SODA_SEAL", seals ? "1" : "0", 1);
	if (program_run("tools/soda/soda", python, &p))
		return 1;
	/* the kernel may have TLS for the data (test_kernel_tls.c) */
	if (seals || soda_tls_kernel(why) == 0 ? p.status || !strstr(p.out, "16384")
					       : !p.status || !strstr(p.err, "SODA_SEAL=1")) {
		fprintf(stderr, "seals %d: status %d, out %s, err %s\n", seals, p.status, p.out,
			p.err);
		return 1;
	}
	return 0;
}

/* By hand: TLS is on, not required, so it is the server that refuses. */
static int connect_there(void)
{
	struct soda_identity *on = identity_of(SODA_TLS_ON, NULL, true, "mem1");
	struct soda_conn *conn = NULL;
	struct peer peer;
	int wrong = 0;

	if (peer_join_as(&peer, THERE, on))
		return 1;
	wrong |= peer_connect_data(&peer, &conn) != -EACCES ||
		 !strstr(peer.why.text, "which this server forbids");
	peer.sealed = true;
	wrong |= peer_connect_data(&peer, &conn) != 0;
	soda_conn_close(conn);
	peer_leave(&peer);
	soda_identity_free(on);
	return wrong;
}

/* Its end of the cable is there once `ready` says so. */
static int other_machine(int ready)
{
	char go;

	if (unshare(CLONE_NEWNET) || write(ready, "n", 1) != 1 || read(ready, &go, 1) != 1)
		return 77;
	if (access(build_path("src/run/libsoda-run.so"), R_OK)) /* with a sanitizer there is none */
		return connect_there();
	return connect_there() | run_there(false) << 1 | run_there(true) << 2;
}

static int machine(void)
{
	struct server there;
	char command[512], go;
	int pair[2], status = 0, ended;
	pid_t other;

	if (unshare(CLONE_NEWNET) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return 77;
	other = fork();
	if (!other) {
		close(pair[0]);
		_exit(other_machine(pair[1]));
	}
	close(pair[1]);
	snprintf(command, sizeof(command),
		 "ip link add v0 type veth peer name v1 netns %d && ip addr add 10.213.77.1/30 dev "
		 "v0 && ip link set v0 up && nsenter -t %d -n ip addr add 10.213.77.2/30 dev v1 && "
		 "nsenter -t %d -n ip link set v1 up",
		 (int)other, (int)other, (int)other);
	if (read(pair[0], &go, 1) != 1 ||
	    system(command) || /* NOLINT: a constant but for the pid */
	    SERVER_START(&there, "--listen", THERE, "--tenants", file, "--tls", "require",
			 "--capacity", "256M"))
		status = 77;
	if (!status && write(pair[0], "g", 1) != 1)
		status = 1;
	close(pair[0]); /* where there was no word it ends */
	if (waitpid(other, &ended, 0) != other)
		return 1;
	if (!status)
		status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
	if (status != 77 && server_stop(&there))
		status = 1;
	return status;
}

/* Beyond this machine only what is sealed. */
static void lets_sealed_data_in(void **state)
{
	int status = 0;
	pid_t pid;

	make_tenant();
	pid = fork();
	if (!pid)
		_exit(machine());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("SKIP: network namespaces, ip and nsenter are needed\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void refuses_to_start(void **state)
{
	struct soda_identity *none = NULL;
	struct soda_conf_error err;
	struct program p;

	make_tenant();
	assert_int_equal(program_run("src/mem_server/soda-mem-server",
				     (const char *const[]){ "--tls", "on", NULL }, &p),
			 0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "--tls on: TLS needs keys"));
	assert_int_equal(
		program_run("src/mem_server/soda-mem-server",
			    (const char *const[]){ "--tls", "require", "--tenants", file,
						   "--listen", "verbs://127.0.0.1:0", NULL },
			    &p),
		0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "verbs carries everything in clear"));
	assert_int_equal(program_run("src/mem_server/soda-mem-server",
				     (const char *const[]){ "--tls", "require", "--tenants", file,
							    "--listen", "tcp://127.0.0.1:0",
							    "--metrics", "0.0.0.0:0", NULL },
				     &p),
			 0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "beyond this machine"));
	/* and programs likewise */
	assert_int_equal(soda_identity_encrypt(SODA_TLS_ON, NULL, NULL, "tcp://a:1", &none, &err),
			 -EINVAL);
	assert_int_equal(soda_identity_encrypt(SODA_TLS_ON, dir, NULL, "verbs://a:1", &none, &err),
			 -ENOTSUP);
	assert_int_equal(soda_identity_encrypt(SODA_TLS_ON, dir, NULL, "tcp://a:1", &none, &err),
			 -ENOENT);
	assert_int_equal(soda_identity_encrypt(SODA_TLS_ON, NULL, NULL, "shm://@a", &none, &err),
			 0);
	assert_null(none);
}

static int set_up(void **state)
{
	snprintf(dir, sizeof(dir), "%s/soda-tls-XXXXXX",
		 getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 30 ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/tenants.ini", dir);
	snprintf(key_path, sizeof(key_path), "%s/physics.key", dir);
	return 0;
}

static int tear_down(void **state)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hides),
		cmocka_unit_test(serves),
		cmocka_unit_test(refuses_downgrade),
		cmocka_unit_test(client_refuses_plain),
		cmocka_unit_test(refuses_keys),
		cmocka_unit_test(refuses_replay_and_changes),
		cmocka_unit_test(outlasts_silence),
		cmocka_unit_test(certifies),
		cmocka_unit_test(renews),
		cmocka_unit_test(lets_sealed_data_in),
		cmocka_unit_test(refuses_to_start),
	};
	struct soda_conf_error err;

	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
