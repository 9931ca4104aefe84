/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A real memory server with tenants, on tcp and on shm, or where SODA_TEST_VERBS names an address
 * on verbs alone; with the argument "agent" a DPU agent with tenants, before an open memory server:
 * who is let in, and what those try who are not.  Whoever is refused disturbs nobody: in each case
 * a tenant's client works on.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/lock.h"
#include "lib/memory.h"
#include "lib/peer.h"
#include "lib/proc.h"
#include "relay.h"
#include "trust/proof.h"
#include "trust/tenants_file.h"

#define MIB (1ull << 20)
#define PAGE 4096u
#define OTHER_USER 65534

enum { PHYSICS, BIOLOGY, OPERATOR, TENANTS };
enum way { TCP, SHM, VERBS };

static const char *const names[TENANTS] = { "physics", "biology", "operator" };

static char dir[64], file[96], shm[80];
static uint8_t roots[TENANTS][SODA_KEY_BYTES];
static struct soda_tenants_file content;
static const char *grace = "60s";
static bool of_agent;
static struct server memory; /* behind the agent */
static struct server server; /* which has the tenants: that, or the agent */
static const char *first;    /* what it listens on beside shm */
static const char *address;  /* of the transport under test */
static struct soda_identity *who[TENANTS];
static struct peer worker; /* of physics: what must not be disturbed */
static struct soda_mr worker_mr;

/* What tenants have */

static void key_path(char out[128], const char *name)
{
	snprintf(out, 128, "%s/%s.key", dir, name);
}

static void write_key(const char *name, const uint8_t *root)
{
	char text[256], path[128], hex[SODA_KEY_TEXT_BYTES];
	struct soda_conf_error err;
	int n = snprintf(text, sizeof(text), "[tenant]\nname = %s\nkey = %s\n", name,
			 soda_key_format(root, SODA_KEY_BYTES, hex));

	key_path(path, name);
	assert_int_equal(soda_private_write(path, text, (size_t)n, &err), 0);
}

static struct soda_identity *identity_of(const char *name, const char *server_name)
{
	struct soda_conf_error err = { "" };
	struct soda_identity *identity;
	char path[128];

	key_path(path, name);
	if (soda_identity_load(name, path, server_name, address, &identity, &err))
		fail_msg("%s", err.text);
	return identity;
}

static struct soda_tenant_entry *entry_of(int tenant)
{
	return soda_tenants_file_find(&content, names[tenant]);
}

static void save(void)
{
	struct soda_conf_error err;

	assert_int_equal(soda_tenants_file_write(file, &content, &err), 0);
}

static void make_tenants(void)
{
	struct soda_tenant_entry *entry;
	struct soda_conf_error err;
	char export[96];

	soda_tenants_file_free(&content);
	strcpy(content.server, "mem1");
	for (int i = 0; i < TENANTS; i++) {
		assert_int_equal(soda_random(roots[i], SODA_KEY_BYTES), 0);
		write_key(names[i], roots[i]);
		assert_int_equal(soda_tenants_file_add(&content, names[i], &entry, &err), 0);
		assert_int_equal(soda_key_for_server(roots[i], "mem1", entry->key), 0);
	}
	entry_of(OPERATOR)->role = SODA_ROLE_OPERATOR;
	entry_of(PHYSICS)->quota = 32 * MIB;
	if (of_agent) { /* directories are the memory server's */
		save();
		return;
	}
	snprintf(export, sizeof(export), "ro %s/shared", dir);
	assert_int_equal(soda_tenant_export_add(entry_of(PHYSICS), export, &err), 0);
	assert_int_equal(soda_tenant_export_add(entry_of(BIOLOGY), export, &err), 0);
	snprintf(export, sizeof(export), "rw %s/physics", dir);
	assert_int_equal(soda_tenant_export_add(entry_of(PHYSICS), export, &err), 0);
	save();
}

/* The server, and a client that works */

static void check_worker(uint8_t value)
{
	static uint8_t page[PAGE], got[PAGE];

	memset(page, value, sizeof(page));
	assert_int_equal(peer_write(&worker, &worker_mr, PAGE, page, PAGE), 0);
	assert_int_equal(peer_read(&worker, &worker_mr, PAGE, got, PAGE), 0);
	assert_memory_equal(page, got, PAGE);
}

static void start(void)
{
	if (!of_agent) {
		assert_int_equal(SERVER_START(&server, "--listen", first, "--listen", shm,
					      "--tenants", file, "--capacity", "256M", "--grace",
					      grace, "--log-level", "debug"),
				 0);
		return;
	}
	assert_int_equal(SERVER_START(&memory, "--capacity", "256M"), 0);
	const char *const args[] = { "--listen",  first, "--listen",	shm,
				     "--tenants", file,	 "--server",	memory.address,
				     "--store",	  "64M", "--log-level", "debug",
				     NULL };

	assert_int_equal(agent_start(&server, args), 0);
}

static void stop(void)
{
	assert_int_equal(server_stop(&server), 0);
	if (of_agent) {
		assert_int_equal(server_stop(&memory), 0);
		server_forget(&memory);
	}
}

static void begin(enum way way)
{
	static int n;

	snprintf(shm, sizeof(shm), "shm://@soda-test-tenants-%d-%d", (int)getpid(), n++);
	make_tenants();
	start();
	address = way == SHM ? shm : server.address;
	for (int i = 0; i < TENANTS; i++)
		who[i] = identity_of(names[i], "mem1");
	assert_int_equal(peer_join_as(&worker, address, who[PHYSICS]), 0);
	assert_int_equal(peer_open(&worker, 1, NULL, 4 * MIB, 0, &worker_mr, NULL), 0);
	check_worker(1);
}

/* The worker has come back; on verbs its keys have ended with the connection before. */
static void returned(const struct peer *again)
{
	assert_int_equal(again->welcome.known, 1);
	worker = *again;
	assert_int_equal(soda_conn_renew_region(worker.control, &worker_mr, 5000, &worker.why), 0);
}

static void end(void)
{
	check_worker(0xee);
	soda_conn_unmap_region(&worker_mr);
	peer_leave(&worker);
	for (int i = 0; i < TENANTS; i++)
		soda_identity_free(who[i]);
	stop();
	assert_int_equal(server_complaints(&server), 0);
	server_forget(&server);
}

/* The highest that anybody may say. */
static uint64_t last_epoch(void)
{
	return UINT64_MAX >> (of_agent ? SODA_AGENT_EPOCH_SHIFT : 0);
}

/* Connect as a client of the same id as the worker. */
static int pretend(const struct soda_identity *identity, uint64_t epoch, bool with_key,
		   struct soda_why *why_p)
{
	struct peer like = worker, liar;
	int r;

	if (!with_key)
		memset(like.client_key, 0x11, sizeof(like.client_key));
	r = peer_return_as(&liar, address, identity, &like, epoch);
	*why_p = liar.why;
	if (!r)
		peer_vanish(&liar);
	return r;
}

/* One connection of physics through a relay that changes these bytes; its outcome. */
static int by_relay(struct relay *r, size_t flip_said, size_t flip_heard, struct soda_why *why)
{
	struct peer peer;
	int ret;

	relay_begin(r, address, flip_said, flip_heard);
	ret = peer_join_as(&peer, r->address, who[PHYSICS]);
	*why = peer.why;
	if (!ret)
		peer_leave(&peer);
	relay_end(r);
	return ret;
}

/* Cases */

/* Promise S1. */
static void serves(enum way way)
{
	struct peer again, other;
	struct soda_mr mr;

	begin(way);
	assert_int_equal(worker.welcome.secret, 0);
	assert_true(server_logs(&server, "of tenant physics is new"));
	/* it comes back, by its key, and finds its region */
	peer_vanish(&worker);
	assert_int_equal(peer_return_as(&again, address, who[PHYSICS], &worker, 2), 0);
	returned(&again);
	check_worker(2);
	/* tenants beside each other; a region id of another tenant's is nothing here */
	assert_int_equal(peer_join_as(&other, address, who[BIOLOGY]), 0);
	assert_int_equal(peer_call(&other, SODA_MSG_CLOSE, 1), -EINVAL);
	assert_int_equal(peer_open(&other, 1, NULL, 4 * MIB, 0, &mr, NULL), 0);
	soda_conn_unmap_region(&mr);
	peer_leave(&other);
	end();
}

/*
 * The keys of tenants, and of their clients, are in no core file of the server's and are not
 * swapped.
 */
static void keeps_keys_to_itself(enum way way)
{
	uint8_t hidden[3][SODA_KEY_BYTES];

	begin(way);
	memcpy(hidden[0], entry_of(PHYSICS)->key, SODA_KEY_BYTES);
	memcpy(hidden[1], entry_of(BIOLOGY)->key, SODA_KEY_BYTES);
	memcpy(hidden[2], worker.client_key, SODA_KEY_BYTES);
	for (size_t i = 0; i < sizeof(hidden); i++)
		((uint8_t *)hidden)[i] ^= MEMORY_HIDE;
	for (int i = 0; i < 3; i++) {
		/* "??": no mapping has that flag, so these are all */
		assert_true(memory_count_keys(server.pid, hidden[i], "??") > 0);
		assert_int_equal(memory_count_keys(server.pid, hidden[i], "dd"), 0);
		assert_int_equal(memory_count_keys(server.pid, hidden[i], "lo"), 0);
	}
	end();
}

static void refuses_strangers(enum way way)
{
	struct soda_tenant_entry *entry = NULL;
	struct soda_identity forged;
	struct peer peer;

	begin(way);
	/* nobody: a HELLO of version 1 */
	assert_int_equal(peer_join(&peer, address), -EACCES);
	assert_non_null(strstr(peer.why.text, "SODA_KEY_FILE"));
	assert_true(server_logs(&server, "this server serves its tenants only"));
	/* a key that is not the tenant's */
	forged = *who[PHYSICS];
	forged.key[0] ^= 1;
	forged.key_id[0] ^= 1;
	assert_int_equal(peer_join_as(&peer, address, &forged), -EACCES);
	assert_true(server_logs(&server, way == VERBS
						 ? "no tenant has this key"
						 : "tenant physics: another key than its own"));
	/* the id of the right key, without the key: the server is no liar, we are */
	forged = *who[PHYSICS];
	forged.key[0] ^= 1;
	assert_int_equal(peer_join_as(&peer, address, &forged), -EACCES);
	/* a tenant that there is not; on verbs no name is said, the key is whose it is */
	forged = *who[PHYSICS];
	strcpy(forged.tenant, "chemistry");
	if (way != VERBS) {
		assert_int_equal(peer_join_as(&peer, address, &forged), -EACCES);
		assert_true(server_logs(&server, "tenant chemistry: there is none of that name"));
	}
	/* by way of an agent, which its role does not allow */
	entry = entry_of(PHYSICS);
	assert_int_equal(entry->role, SODA_ROLE_CLIENT);
	end();
}

/* Promises R6 and S1. */
static void refuses_liars(enum way way)
{
	struct soda_conn *conn;
	struct peer liar;
	struct soda_why why;

	begin(way);
	/* another tenant, and another process of the same one, with the id of the worker */
	assert_int_equal(pretend(who[BIOLOGY], 2, true, &why), -EPERM);
	assert_non_null(strstr(why.text, "another tenant's"));
	assert_true(server_logs(&server,
				"of tenant biology: refused: this client is another tenant's"));
	assert_int_equal(pretend(who[PHYSICS], 2, false, &why), -ESTALE);
	assert_true(server_logs(
		&server, "of tenant physics: refused: the proof for this client id is wrong"));
	/* an epoch after which nobody could come back */
	assert_int_equal(pretend(who[PHYSICS], UINT64_MAX, true, &why), -EINVAL);
	assert_int_equal(pretend(who[PHYSICS], last_epoch(), true, &why), -EINVAL);
	assert_int_equal(pretend(who[BIOLOGY], last_epoch(), true, &why), -EPERM);
	assert_int_equal(pretend(who[PHYSICS], last_epoch(), false, &why), -ESTALE);
	/* data connections of the worker's client, by others */
	liar = worker;
	liar.identity = who[BIOLOGY];
	assert_int_equal(peer_connect_data(&liar, &conn), -EPERM);
	liar.identity = who[PHYSICS];
	memset(liar.client_key, 0, sizeof(liar.client_key));
	assert_int_equal(peer_connect_data(&liar, &conn), -ESTALE);
	liar = worker;
	liar.identity = NULL;
	assert_int_equal(peer_connect_data(&liar, &conn), -EACCES);
	end();
}

static void refuses_replay(enum way way)
{
	uint8_t heard[512];
	struct soda_why why;
	struct relay r;
	ssize_t n, all = 0;
	int fd;

	begin(way);
	/* somebody between who only listens */
	assert_int_equal(by_relay(&r, 0, 0, &why), 0);
	assert_true(r.said_n > 200);
	/* all that the client has said, once more */
	fd = relay_dial(address);
	assert_int_equal(send(fd, r.said, r.said_n, MSG_NOSIGNAL), r.said_n);
	while ((n = recv(fd, heard + all, sizeof(heard) - (size_t)all, 0)) > 0)
		all += n;
	close(fd);
	/* the challenge, another one than before, and a refusal */
	assert_true(all > (ssize_t)(SODA_WIRE_FRAME_BYTES + SODA_WIRE_CHALLENGE_BYTES));
	assert_int_equal(heard[0], SODA_MSG_CHALLENGE);
	assert_int_equal(heard[SODA_WIRE_FRAME_BYTES + SODA_WIRE_CHALLENGE_BYTES],
			 SODA_MSG_REFUSED);
	assert_true(server_logs(&server, "tenant physics: the proof is wrong"));
	end();
}

static void refuses_changes(enum way way)
{
	/* where the parts lie: HELLO, ASK, PROOF; CHALLENGE, welcome */
	const size_t hello = SODA_WIRE_FRAME_BYTES;
	const size_t ask = hello + SODA_WIRE_HELLO_BYTES + SODA_WIRE_FRAME_BYTES;
	const size_t proof = ask + SODA_WIRE_ASK_BYTES + SODA_WIRE_FRAME_BYTES;
	const size_t welcome = 2 * SODA_WIRE_FRAME_BYTES + SODA_WIRE_CHALLENGE_BYTES;
	const size_t said[] = { hello + 12 /* features */, hello + 48 /* epoch */,
				ask + 3 /* nonce */, proof + 5 };
	const size_t heard[] = { SODA_WIRE_FRAME_BYTES + 2 /* nonce */,
				 SODA_WIRE_FRAME_BYTES + 40 /* mac */, welcome + 20 /* client id */,
				 welcome + SODA_WIRE_WELCOME_BYTES + 1 };
	struct soda_why why;
	struct relay r;

	begin(way);
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		assert_int_equal(by_relay(&r, said[i], 0, &why), -EACCES);
	for (size_t i = 0; i < sizeof(heard) / sizeof(heard[0]); i++) {
		assert_int_equal(by_relay(&r, 0, heard[i], &why), -EACCES);
		assert_non_null(strstr(why.text, "does not prove"));
	}
	end();
}

/* A server that answers what it likes. */
struct rogue {
	int listener;
	char address[80];
	pthread_t thread;
	const void *answer;
	size_t bytes;
};

static void *rogue_main(void *arg)
{
	struct rogue *r = arg;
	int fd = accept4(r->listener, NULL, NULL, SOCK_CLOEXEC);
	uint8_t said[512];

	/* HELLO and ASK: all, so that the close is no reset */
	recv(fd, said, 2 * SODA_WIRE_FRAME_BYTES + SODA_WIRE_HELLO_BYTES + SODA_WIRE_ASK_BYTES,
	     MSG_WAITALL);
	send(fd, r->answer, r->bytes, MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	while (recv(fd, said, sizeof(said), 0) > 0)
		;
	close(fd);
	return NULL;
}

static int ask_rogue(const void *answer, size_t bytes, struct soda_why *why)
{
	struct rogue r = { .answer = answer, .bytes = bytes };
	struct peer peer;
	int ret;

	r.listener = relay_listen(r.address);
	assert_int_equal(pthread_create(&r.thread, NULL, rogue_main, &r), 0);
	ret = peer_join_as(&peer, r.address, who[PHYSICS]);
	*why = peer.why;
	pthread_join(r.thread, NULL);
	close(r.listener);
	return ret;
}

static void finds_out_rogues(enum way way)
{
	uint8_t text[SODA_WIRE_FRAME_BYTES + SODA_WIRE_CHALLENGE_BYTES] = { 0 };
	struct soda_identity *elsewhere;
	struct soda_why why;
	struct server open;
	struct peer peer;

	begin(way);
	/* an open server, whose address this could be */
	assert_int_equal(SERVER_START(&open, "--capacity", "64M"), 0);
	assert_int_equal(peer_join_as(&peer, open.address, who[PHYSICS]), -EPROTONOSUPPORT);
	assert_int_equal(server_stop(&open), 0);
	server_forget(&open);
	/* one that lets us in without a challenge: the downgrade */
	soda_wire_put_frame(text, &(struct soda_wire_frame){ .type = SODA_MSG_OK,
							     .length = SODA_WIRE_WELCOME_BYTES });
	assert_int_equal(ask_rogue(text, SODA_WIRE_FRAME_BYTES + SODA_WIRE_WELCOME_BYTES, &why),
			 -EACCES);
	assert_non_null(strstr(why.text, "proves nothing"));
	/* one that has no key */
	soda_wire_put_frame(text, &(struct soda_wire_frame){ .type = SODA_MSG_CHALLENGE,
							     .length = SODA_WIRE_CHALLENGE_BYTES });
	assert_int_equal(ask_rogue(text, sizeof(text), &why), -EACCES);
	assert_non_null(strstr(why.text, "does not prove"));
	/* another server that this tenant has: its key is of another name */
	elsewhere = identity_of(names[PHYSICS], "mem2");
	assert_int_equal(peer_join_as(&peer, address, elsewhere), -EACCES);
	soda_identity_free(elsewhere);
	end();
}

/* The program's end becomes known when another one waits for its part of the quota. */
static void *vanish_late(void *arg)
{
	usleep(20000);
	peer_vanish(arg);
	return NULL;
}

/* A program that ends leaves its part of the quota to the next one, which starts at once. */
static void follow(struct peer *a, struct soda_mr *mr_p)
{
	const uint8_t later = SODA_WIRE_BYE_LATER;
	const struct iovec iov = { (void *)(uintptr_t)&later, sizeof(later) };
	uint64_t since, end;
	struct peer b;
	pthread_t t;
	int ret;

	soda_conn_unmap_region(mr_p);
	assert_int_equal(peer_join_as(&b, address, who[PHYSICS]), 0);
	since = soda_now_ms();
	end = since + PEER_TIMEOUT_MS;
	assert_int_equal(soda_conn_call(a->control, SODA_MSG_BYE, &iov, 1, NULL, 0, NULL,
					PEER_TIMEOUT_MS, &a->why),
			 0);
	assert_int_equal(pthread_create(&t, NULL, vanish_late, a), 0);
	ret = peer_open(&b, 1, NULL, 28 * MIB, 0, mr_p, NULL);
	assert_int_equal(pthread_join(t, NULL), 0);
	/* on a busy machine the end may come later than it is waited for */
	assert_true(!ret || soda_now_ms() - since >= SODA_SERVER_LEAVING_MS);
	while (ret && soda_now_ms() < end)
		ret = peer_open(&b, 1, NULL, 28 * MIB, 0, mr_p, NULL);
	assert_int_equal(ret, 0);
	*a = b;
}

/* Promise S2. */
static void keeps_quotas(enum way way)
{
	struct soda_mr mr[3];
	struct peer a, b, asks, sees;
	char *text = NULL;

	begin(way);
	/* 32 MiB for all of physics, 4 of which the worker has */
	assert_int_equal(peer_join_as(&a, address, who[PHYSICS]), 0);
	assert_int_equal(peer_join_as(&b, address, who[PHYSICS]), 0);
	assert_int_equal(peer_open(&a, 1, NULL, 16 * MIB, 0, &mr[0], NULL), 0);
	assert_int_equal(peer_open(&b, 1, NULL, 16 * MIB, 0, &mr[1], NULL), -EDQUOT);
	assert_non_null(strstr(b.why.text, "tenant's quota"));
	assert_int_equal(peer_open(&b, 1, NULL, 12 * MIB, 0, &mr[1], NULL), 0);
	/* others have theirs */
	assert_int_equal(peer_join_as(&asks, address, who[OPERATOR]), 0);
	assert_int_equal(peer_open(&asks, 1, NULL, 64 * MIB, 0, &mr[2], NULL), 0);
	assert_int_equal(peer_stat_sum(&asks, "tenant_list", "used_bytes"), 96 * MIB);
	assert_int_equal(peer_stat_sum(&asks, "tenant_list", "quota_bytes"), 32 * MIB);
	assert_int_equal(peer_stat_sum(&asks, "tenant_list", "clients"), 4);
	assert_true(peer_stat_sum(&asks, "tenant_list", "bytes_written") >=
		    (way == TCP ? PAGE : 0));
	/* and do not see what others have */
	assert_int_equal(peer_join_as(&sees, address, who[BIOLOGY]), 0);
	assert_int_equal(peer_stat_sum(&sees, "tenant_list", "used_bytes"), 0);
	if (!of_agent) /* whose clients have regions, which the server counts */
		assert_int_equal(peer_stat_sum(&sees, "client_list", "used_bytes"), 0);
	peer_leave(&sees);
	for (int i = 0; i < 3; i++)
		soda_conn_unmap_region(&mr[i]);
	peer_leave(&a);
	peer_leave(&b);
	assert_int_equal(peer_join_as(&a, address, who[PHYSICS]), 0);
	assert_int_equal(peer_open(&a, 1, NULL, 28 * MIB, 0, &mr[0], NULL), 0);
	follow(&a, &mr[0]);
	soda_conn_unmap_region(&mr[0]);
	peer_leave(&a);
	peer_leave(&asks);
	free(text);
	end();
}

static void make_file(const char *name, const char *text)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int try_open(struct peer *peer, const char *name, uint32_t flags, uint64_t bytes)
{
	struct soda_mr mr;
	int r = peer_open(peer, 9, name, bytes, flags, &mr, NULL);

	if (!r) {
		soda_conn_unmap_region(&mr);
		assert_int_equal(peer_call(peer, SODA_MSG_CLOSE, 9), 0);
	}
	return r;
}

/* Promise S9. */
static void keeps_directories(enum way way)
{
	struct peer physics, biology, operator;
	char made[160];
	struct stat st;

	make_file("shared/graph", "all may read this");
	make_file("physics/notes", "physics alone");
	make_file("secret", "nobody");
	begin(way);
	assert_int_equal(peer_join_as(&physics, address, who[PHYSICS]), 0);
	assert_int_equal(peer_join_as(&biology, address, who[BIOLOGY]), 0);
	assert_int_equal(peer_join_as(&operator, address, who[OPERATOR]), 0);
	assert_int_equal(try_open(&physics, "graph", SODA_WIRE_READ_ONLY, 0), 0);
	assert_int_equal(try_open(&biology, "graph", SODA_WIRE_READ_ONLY, 0), 0);
	assert_int_equal(try_open(&physics, "notes", SODA_WIRE_WRITABLE, 0), 0);
	/* another tenant's file; nobody's; what may be read only; who has no directory */
	assert_int_equal(try_open(&biology, "notes", SODA_WIRE_READ_ONLY, 0), -ENOENT);
	assert_int_equal(try_open(&biology, "../physics/notes", SODA_WIRE_READ_ONLY, 0), -EACCES);
	assert_int_equal(try_open(&physics, "secret", SODA_WIRE_READ_ONLY, 0), -ENOENT);
	assert_int_equal(try_open(&physics, "graph", SODA_WIRE_WRITABLE, 0), -ENOENT);
	assert_int_equal(try_open(&biology, "graph", SODA_WIRE_WRITABLE, 0), -EACCES);
	assert_int_equal(try_open(&operator, "graph", SODA_WIRE_READ_ONLY, 0), -EACCES);
	if (!of_agent) { /* who may not read a file does not learn what it has */
		struct soda_wire_content said, again;

		assert_int_equal(peer_content(&physics, 0, "notes", &said), 0);
		assert_int_equal(peer_content(&biology, 0, "notes", &said), -ENOENT);
		assert_int_equal(peer_content(&biology, 0, "../physics/notes", &said), -EACCES);
		assert_int_equal(peer_content(&operator, 0, "graph", &said), -ENOENT);
		assert_int_equal(peer_content(&physics, 0, "graph", &said), 0);
		assert_int_equal(peer_content(&biology, 0, "graph", &again), 0);
		assert_memory_equal(&said, &again, sizeof(said));
	}
	/* made where the tenant may write, although that is its second directory */
	assert_int_equal(try_open(&physics, "new", SODA_WIRE_WRITABLE | SODA_WIRE_CREATE, 8192), 0);
	snprintf(made, sizeof(made), "%s/physics/new", dir);
	assert_int_equal(stat(made, &st), 0);
	assert_int_equal(unlink(made), 0);
	peer_leave(&physics);
	peer_leave(&biology);
	peer_leave(&operator);
	end();
}

/* For want of descriptors a file is neither another tenant's, nor not there. */
static void keeps_directories_without_descriptors(enum way way)
{
	struct rlimit was, none = { 3, 0 };
	struct soda_wire_content said;
	struct peer physics;

	make_file("shared/graph", "all may read this");
	begin(way);
	assert_int_equal(peer_join_as(&physics, address, who[PHYSICS]), 0);
	assert_int_equal(try_open(&physics, "graph", SODA_WIRE_READ_ONLY, 0), 0);
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, NULL, &was), 0);
	none.rlim_max = was.rlim_max;
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &none, NULL), 0);
	assert_int_equal(try_open(&physics, "graph", SODA_WIRE_READ_ONLY, 0), -ENOMEM);
	assert_non_null(strstr(physics.why.text, "no descriptors left"));
	assert_int_equal(peer_content(&physics, 0, "graph", &said), -ENOMEM);
	assert_int_equal(prlimit(server.pid, RLIMIT_NOFILE, &was, NULL), 0);
	assert_int_equal(try_open(&physics, "graph", SODA_WIRE_READ_ONLY, 0), 0);
	peer_leave(&physics);
	end();
}

/* SIGHUP, and that the file has been read. */
static void reload(const char *logs)
{
	assert_int_equal(kill(server.pid, SIGHUP), 0);
	assert_true(server_logs(&server, logs));
}

static void rotate(int tenant, time_t until)
{
	struct soda_tenant_entry *entry = entry_of(tenant);

	memcpy(entry->previous, entry->key, SODA_KEY_BYTES);
	entry->has_previous = true;
	entry->previous_until = until;
	assert_int_equal(soda_random(roots[tenant], SODA_KEY_BYTES), 0);
	assert_int_equal(soda_key_for_server(roots[tenant], "mem1", entry->key), 0);
	write_key(names[tenant], roots[tenant]);
	save();
}

/* Promise S10. */
static void reads_again(enum way way)
{
	struct soda_identity *newer;
	struct peer peer;

	begin(way);
	/* rotated: the old key and the new one both are right for a while */
	rotate(PHYSICS, time(NULL) + 3600);
	reload("read again: 3 tenants");
	newer = identity_of(names[PHYSICS], "mem1");
	assert_memory_not_equal(newer->key, who[PHYSICS]->key, SODA_KEY_BYTES);
	assert_int_equal(peer_join_as(&peer, address, who[PHYSICS]), 0);
	peer_leave(&peer);
	assert_int_equal(peer_join_as(&peer, address, newer), 0);
	peer_leave(&peer);
	check_worker(3);
	/* and then not */
	entry_of(PHYSICS)->previous_until = time(NULL) - 10;
	soda_tenants_file_remove(&content, entry_of(BIOLOGY));
	save();
	assert_int_equal(peer_join_as(&peer, address, who[BIOLOGY]), 0);
	reload("read again: 2 tenants");
	assert_int_equal(peer_open(&peer, 1, NULL, MIB, 0, &(struct soda_mr){ 0 }, NULL),
			 -ECONNRESET);
	peer_vanish(&peer);
	assert_true(server_logs(&server, "tenant biology has been removed"));
	assert_int_equal(peer_join_as(&peer, address, who[BIOLOGY]), -EACCES);
	assert_int_equal(peer_join_as(&peer, address, who[PHYSICS]), -EACCES);
	assert_true(server_logs(&server, "its previous key, which was valid until"));
	/* who reads the key file again has the new one; the client stays the one it was */
	soda_identity_refresh(who[PHYSICS]);
	assert_memory_equal(newer->key, who[PHYSICS]->key, SODA_KEY_BYTES);
	peer_vanish(&worker);
	assert_int_equal(peer_return_as(&peer, address, who[PHYSICS], &worker, 2), 0);
	returned(&peer);
	soda_identity_free(newer);
	end();
}

/* What cannot be used changes nothing, and is said. */
static void keeps_what_it_has(enum way way)
{
	static const char bad[] = "[server]\nname = mem1\n[tenant x]\nkey = 12\n";
	struct soda_conf_error err;
	struct peer peer;

	begin(way);
	assert_int_equal(soda_private_write(file, bad, sizeof(bad) - 1, &err), 0);
	reload(".ini:4: a key is 64 hexadecimal digits");
	assert_int_equal(peer_join_as(&peer, address, who[BIOLOGY]), 0);
	peer_leave(&peer);
	assert_int_equal(chmod(file, 0640), 0);
	reload("others than its owner can use this file");
	check_worker(4);
	soda_conn_unmap_region(&worker_mr);
	peer_leave(&worker);
	for (int i = 0; i < TENANTS; i++)
		soda_identity_free(who[i]);
	stop();
	server_forget(&server);
}

/* What a memory server's file may say, and an agent's may not. */
static void refuses_what_is_the_servers(const char *program)
{
	struct soda_conf_error err;
	struct program p;

	assert_int_equal(soda_tenant_export_add(entry_of(BIOLOGY), "ro /tmp", &err), 0);
	save();
	assert_int_equal(program_run(program, (const char *const[]){ "--tenants", file, NULL }, &p),
			 0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "tenant biology: an agent exports no directories"));
	make_tenants();
}

/* Root reads all files; a daemon of root's takes keys from no other user, who could change them. */
static void refuses_another_users(const char *program)
{
	struct program p;

	if (geteuid())
		return;
	assert_int_equal(chown(file, OTHER_USER, OTHER_USER), 0);
	assert_int_equal(program_run(program, (const char *const[]){ "--tenants", file, NULL }, &p),
			 0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "is a regular file of this user or root"));
	assert_int_equal(chown(file, 0, 0), 0);
}

static void refuses_to_start(void **state)
{
	const char *program =
		of_agent ? "src/dpu_agent/soda-dpu-agent" : "src/mem_server/soda-mem-server";
	struct program p;

	make_tenants();
	assert_int_equal(chmod(file, 0604), 0);
	assert_int_equal(program_run(program, (const char *const[]){ "--tenants", file, NULL }, &p),
			 0);
	assert_int_equal(p.status, 1);
	assert_non_null(strstr(p.err, "others than its owner can use this file (mode 0604)"));
	assert_int_equal(chmod(file, 0600), 0);
	refuses_another_users(program);
	if (of_agent) {
		refuses_what_is_the_servers(program);
	} else {
		assert_int_equal(program_run(program,
					     (const char *const[]){ "--tenants", file, "--export",
								    dir, NULL },
					     &p),
				 0);
		assert_int_equal(p.status, 1);
		assert_non_null(strstr(p.err, "leave --export out"));
	}
}

/* Tokens: what adopts a client, and what does not. */

static int try_adopt(int tenant, const struct soda_wire_token *token, uint64_t epoch,
		     const char *sentence)
{
	struct peer thief;
	int r = peer_adopt_as(&thief, address, who[tenant], worker.welcome.client_id, token->token,
			      epoch);

	if (r && !strstr(thief.why.text, sentence))
		fail_msg("%s", thief.why.text);
	if (!r)
		peer_vanish(&thief);
	return r;
}

static void ask_token(uint32_t held, struct soda_wire_token *token)
{
	if (peer_token(&worker, held, token))
		fail_msg("%s", worker.why.text);
}

/* The worker's process is another one now, which has the token and nothing else of it. */
static void adopt(const struct soda_wire_token *token, uint64_t epoch)
{
	struct peer next;

	if (peer_adopt_as(&next, address, who[PHYSICS], worker.welcome.client_id, token->token,
			  epoch))
		fail_msg("%s", next.why.text);
	/* what the one before had is closed, before the next has its answer */
	assert_true(peer_call(&worker, SODA_MSG_SYNC, 1) < 0);
	peer_vanish(&worker);
	returned(&next);
}

/* Promise S1. */
static void refuses_tokens(enum way way)
{
	static const char wrong[] = "the token for this client id is wrong";
	struct soda_wire_token token, bad;
	struct peer other, before, late;
	struct soda_mr mr;

	begin(way);
	assert_int_equal(peer_join_as(&other, address, who[BIOLOGY]), 0);
	assert_int_equal(peer_open(&other, 1, NULL, MIB, 0, &mr, NULL), 0);
	/* guessed, where there is none yet, and where there is one */
	memset(&bad, 0, sizeof(bad));
	assert_int_equal(try_adopt(PHYSICS, &bad, 2, wrong), -ESTALE);
	ask_token(0, &token);
	assert_int_equal(try_adopt(PHYSICS, &bad, 2, wrong), -ESTALE);
	bad = token;
	bad.token[15] ^= 1;
	assert_int_equal(try_adopt(PHYSICS, &bad, 2, wrong), -ESTALE);
	assert_true(server_logs(&server, "of tenant physics: refused: the token for this client"));
	/* another tenant has it */
	assert_int_equal(try_adopt(BIOLOGY, &token, 2, "another tenant's"), -EPERM);
	assert_true(server_logs(&server, "of tenant biology: refused: this client is another"));
	/* an epoch that was, and one after which nobody could come back */
	assert_int_equal(try_adopt(PHYSICS, &token, 1, "old epoch"), -ESTALE);
	assert_int_equal(try_adopt(PHYSICS, &token, last_epoch(), "reconnects as often"), -EINVAL);
	/* nobody has noticed any of it */
	check_worker(2);
	assert_int_equal(peer_call(&worker, SODA_MSG_SYNC, 1), 0);
	/* the next process has it, and the key of the one before is nobody's */
	before = worker;
	adopt(&token, 2);
	assert_true(server_logs(&server, "is back, adopted by its token"));
	check_worker(3);
	assert_int_equal(peer_return_as(&late, address, who[PHYSICS], &before, 3), -ESTALE);
	/* said again, once the next one is held: a replay */
	ask_token(token.number, &bad);
	assert_int_not_equal(bad.number, token.number);
	ask_token(bad.number, &bad);
	assert_int_equal(try_adopt(PHYSICS, &token, 3, wrong), -ESTALE);
	check_worker(4);
	adopt(&bad, 3);
	assert_int_equal(peer_ask_as(&late, address, who[OPERATOR]), 0);
	assert_int_equal(peer_stat(&late, "clients_adopted"), 2);
	peer_leave(&late);
	assert_int_equal(peer_call(&other, SODA_MSG_SYNC, 1), 0);
	soda_conn_unmap_region(&mr);
	peer_leave(&other);
	end();
}

static void forgets_tokens(enum way way)
{
	struct soda_wire_token token, next;

	grace = "1s";
	begin(way);
	grace = "60s";
	ask_token(0, &token);
	assert_true(token.left_ms <= 2000);
	usleep((token.left_ms + 100) * 1000);
	assert_int_equal(try_adopt(PHYSICS, &token, 2, "has expired"), -ESTALE);
	assert_true(server_logs(&server, "refused: the token for this client id has expired"));
	check_worker(2);
	ask_token(token.number, &next);
	assert_int_not_equal(next.number, token.number);
	/* and by then its client may have gone: this is a new one */
	peer_vanish(&worker);
	assert_true(server_logs(&server, "did not come back"));
	soda_conn_unmap_region(&worker_mr);
	if (peer_adopt_as(&worker, address, who[PHYSICS], worker.welcome.client_id, next.token, 2))
		fail_msg("%s", worker.why.text);
	assert_int_equal(worker.welcome.known, 0);
	assert_int_equal(peer_open(&worker, 1, NULL, 4 * MIB, 0, &worker_mr, NULL), 0);
	end();
}

/* Where nobody would count, a tenant with a rate is not let in; and is, once it has none. */
static void refuses_rates(enum way way)
{
	struct peer peer;
	int r;

	begin(way);
	entry_of(BIOLOGY)->rate = 4 * MIB;
	save();
	reload("read again: 3 tenants");
	r = peer_join_as(&peer, address, who[BIOLOGY]);
	if (way == TCP) {
		assert_int_equal(r, 0);
		peer_leave(&peer);
	} else {
		assert_int_equal(r, -EPERM);
		assert_non_null(strstr(peer.why.text,
				       way == SHM ? "tenant biology has a rate, and over shm its "
						    "programs would use"
						  : "tenant biology has a rate, and over verbs "
						    "requests do not wait for it: connect by tcp"));
		assert_true(server_logs(&server, "of tenant biology: refused: tenant biology has"));
	}
	check_worker(2);
	entry_of(BIOLOGY)->rate = 0;
	save();
	assert_int_equal(kill(server.pid, SIGHUP), 0);
	/* when it has read that */
	for (int i = 0; i < LOOKS && (r = peer_join_as(&peer, address, who[BIOLOGY])); i++)
		usleep(10000);
	assert_int_equal(r, 0);
	peer_leave(&peer);
	end();
}

#define BOTH(name)                                                                                 \
	static void name##_tcp(void **state)                                                       \
	{                                                                                          \
		name(TCP);                                                                         \
	}                                                                                          \
	static void name##_shm(void **state)                                                       \
	{                                                                                          \
		name(SHM);                                                                         \
	}

BOTH(serves)
BOTH(keeps_keys_to_itself)
BOTH(refuses_strangers)
BOTH(refuses_liars)
BOTH(refuses_replay)
BOTH(refuses_changes)
BOTH(finds_out_rogues)
BOTH(keeps_quotas)
BOTH(keeps_directories)
BOTH(keeps_directories_without_descriptors)
BOTH(reads_again)
BOTH(keeps_what_it_has)
BOTH(refuses_rates)
BOTH(refuses_tokens)
BOTH(forgets_tokens)

#define ON_VERBS(name)                                                                             \
	static void name##_verbs(void **state)                                                     \
	{                                                                                          \
		name(VERBS);                                                                       \
	}

ON_VERBS(serves)
ON_VERBS(refuses_strangers)
ON_VERBS(refuses_liars)
ON_VERBS(keeps_quotas)
ON_VERBS(keeps_directories)
ON_VERBS(reads_again)
ON_VERBS(keeps_what_it_has)
ON_VERBS(refuses_rates)
ON_VERBS(refuses_tokens)
ON_VERBS(forgets_tokens)

#define TESTS(name) cmocka_unit_test(name##_tcp), cmocka_unit_test(name##_shm)

static int set_up(void **state)
{
	char path[96];

	snprintf(dir, sizeof(dir), "%s/soda-tenants-XXXXXX",
		 getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 30 ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(file, sizeof(file), "%s/tenants.ini", dir);
	snprintf(path, sizeof(path), "%s/shared", dir);
	if (mkdir(path, 0755))
		return -1;
	snprintf(path, sizeof(path), "%s/physics", dir);
	return mkdir(path, 0755);
}

static int tear_down(void **state)
{
	char command[128];

	soda_tenants_file_free(&content);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

#define EVERYBODYS                                                                                 \
	TESTS(serves), TESTS(keeps_keys_to_itself), TESTS(refuses_strangers),                      \
		TESTS(refuses_liars), TESTS(refuses_replay), TESTS(refuses_changes),               \
		TESTS(finds_out_rogues), TESTS(reads_again), TESTS(keeps_what_it_has),             \
		TESTS(keeps_quotas), TESTS(refuses_rates), cmocka_unit_test(refuses_to_start)

int main(int argc, char **argv)
{
	const struct CMUnitTest servers[] = {
		EVERYBODYS,
		TESTS(keeps_directories),
		TESTS(keeps_directories_without_descriptors),
		TESTS(refuses_tokens),
		TESTS(forgets_tokens),
	};
	const struct CMUnitTest agents[] = { EVERYBODYS };
	/* what is said there is no stream: tests/rdma_guest/test_proof.c tells lies on it */
	const struct CMUnitTest verbs[] = {
		cmocka_unit_test(serves_verbs),
		cmocka_unit_test(refuses_strangers_verbs),
		cmocka_unit_test(refuses_liars_verbs),
		cmocka_unit_test(reads_again_verbs),
		cmocka_unit_test(keeps_what_it_has_verbs),
		cmocka_unit_test(keeps_quotas_verbs),
		cmocka_unit_test(refuses_rates_verbs),
	};
	const struct CMUnitTest verbs_servers[] = {
		cmocka_unit_test(keeps_directories_verbs),
		cmocka_unit_test(refuses_tokens_verbs),
		cmocka_unit_test(forgets_tokens_verbs),
	};
	struct soda_conf_error err;
	int failed;

	cmocka_set_test_filter(getenv("SODA_TEST_ONLY")); /* NULL: all of them */
	if (soda_crypto_ready(&err)) {
		printf("SKIP: %s\n", err.text);
		return 77;
	}
	of_agent = argc > 1 && !strcmp(argv[1], "agent");
	first = getenv("SODA_TEST_VERBS");
	if (first) {
		failed = cmocka_run_group_tests(verbs, set_up, tear_down);
		return of_agent ? failed
				: failed + cmocka_run_group_tests(verbs_servers, set_up, tear_down);
	}
	first = "tcp://127.0.0.1:0";
	return of_agent ? cmocka_run_group_tests(agents, set_up, tear_down)
			: cmocka_run_group_tests(servers, set_up, tear_down);
}
