/* SPDX-License-Identifier: BSD-3-Clause */
/* The option table, and the words of the man page. */
#include "dpu_agent/base/options.h"
#include "wire/messages.h"

#include "base/limits.h"
#include "dpu_agent/cache/dynamic/dynamic_cache.h"
#include "trust/identity.h"

#define ENV "SODA_DPU_"
#define AT(field) .offset = offsetof(struct soda_dpu_options, field)

/* as enum soda_answer_by */
/* as enum soda_seal_files */
static const char *const seal_files[] = { "require", "allow", NULL };

static const char *const answers[] = { "write", "send", NULL };

/* as enum soda_prefetch_limit */
static const char *const limits[] = { "both", "budget", "model", NULL };

static const struct soda_option options[] = {
	SODA_DAEMON_LISTEN(
		ENV, "tcp://127.0.0.1:7002",
		"Where programs connect: tcp://HOST:PORT (port 0 picks a free one),"
		" verbs://HOST:PORT (RDMA: HOST is the address of an RDMA device), or on the"
		" same machine shm:///PATH or shm://@NAME; several, separated by commas, or the"
		" option again."),
	{ .name = "server",
	  .env = ENV "SERVER",
	  .letter = 's',
	  .type = SODA_OPT_STRING,
	  AT(server),
	  .arg = "ADDRESS",
	  .def = "tcp://127.0.0.1:7001",
	  .max = SODA_MEMBERS_TEXT_MAX,
	  .help = "The memory server; or several, with commas between: a pool, which the programs "
		  "then have, see soda(7); or etcd://HOST:PORT[,...]/POOL, those that are "
		  "registered there, also later ones; or another agent, which has the memory "
		  "server, or the pool, behind it and is reached by tcp or verbs." },
	SODA_ETCD_CA(ENV "ETCD_CA", AT(etcd.ca)),
	SODA_ETCD_CERT(ENV "ETCD_CERT", AT(etcd.cert)),
	SODA_ETCD_KEY(ENV "ETCD_KEY", AT(etcd.key)),
	SODA_ETCD_USER(ENV "ETCD_USER", AT(etcd.user_file)),
	{ .name = "tenant",
	  .env = ENV "TENANT",
	  .type = SODA_OPT_STRING,
	  AT(tenant),
	  .arg = "NAME",
	  .max = SODA_TENANT_NAME_MAX,
	  .help = "As which tenant, of role agent, the agent and all of its programs use a server "
		  "with tenants. Default: the one in the key file." },
	{ .name = "key-file",
	  .env = ENV "KEY_FILE",
	  .type = SODA_OPT_STRING,
	  AT(key_file),
	  .arg = "FILE",
	  .help = "That tenant's key, which soda-tenant-add(1) made. Nobody else may read the "
		  "file. With it the agent uses only a server that proves itself; without it, one "
		  "that serves everybody." },
	{ .name = "server-name",
	  .env = ENV "SERVER_NAME",
	  .type = SODA_OPT_STRING,
	  AT(server_name),
	  .arg = "NAME",
	  .max = SODA_WIRE_TENANT_MAX,
	  .help = "The name of the server that is meant, as its tenants file has it. Default: the "
		  "host in its address, localhost for shm." },
	{ .name = "tenants",
	  .env = ENV "TENANTS",
	  .type = SODA_OPT_STRING,
	  AT(tenants),
	  .arg = "FILE",
	  .help = "Serve the tenants of this file, and nobody else: see soda-tenant-add(1). Each "
		  "client proves its tenant's key; rates, weights and quotas hold here, "
		  "directories are the memory server's, to which all of them are the agent's "
		  "tenant. Nobody else may read the file. Read again at SIGHUP." },
	SODA_DAEMON_TLS(ENV, " The agent's own control connections to the server are by TLS with "
			     "both, by --key-file or ca.pem."),
	SODA_DAEMON_TLS_CERTIFICATES(ENV, " And ca.pem, whose certificates are believed of the "
					  "server. Default: keys are used."),
	{ .name = "base",
	  .env = ENV "BASE",
	  .type = SODA_OPT_BOOL,
	  AT(base),
	  .def = "no",
	  .help = "Plain proxy: receive, forward, wait, reply. Switches everything off that "
		  "follows. A server that does not answer holds up its threads: not for a pool "
		  "whose programs are not to notice that." },
	{ .name = "aggregate",
	  .env = ENV "AGGREGATE",
	  .type = SODA_OPT_BOOL,
	  AT(aggregate),
	  .def = "yes",
	  .help = "Forward requests that wait at the same time as one batch, and adjacent ones as "
		  "one transfer." },
	{ .name = "async",
	  .env = ENV "ASYNC",
	  .type = SODA_OPT_BOOL,
	  AT(async),
	  .def = "yes",
	  .help = "Receive and complete in separate threads, and acknowledge programs' writes at "
		  "once." },
	{ .name = "seal",
	  .env = ENV "SEAL",
	  .type = SODA_OPT_BOOL,
	  AT(seal),
	  .def = "no",
	  .help = "Encrypt and authenticate what programs write, before it goes to the server, and "
		  "open what comes back: the memory server, and the wire to it, have ciphertext "
		  "only, and a block that was changed there is SIGBUS, or with redundancy read "
		  "from another server. Files that are written are "
		  "sealed at rest with --seal-key-file, else refused, as are files opened "
		  "PRIVATE and published objects. Needs --async." },
	{ .name = "seal-key-file",
	  .env = ENV "SEAL_KEY_FILE",
	  .type = SODA_OPT_STRING,
	  AT(seal_key_file),
	  .arg = "FILE",
	  .help = "The key of the files that programs write through this agent with --seal, of "
		  "soda seal key: they are sealed at rest in the server's directory, as a program "
		  "does with SODA_SEAL_KEY_FILE. Files that were sealed with it can be read." },
	{ .name = "seal-files",
	  .env = ENV "SEAL_FILES",
	  .type = SODA_OPT_CHOICE,
	  AT(seal_files),
	  .arg = "WHICH",
	  .def = "require",
	  .choices = seal_files,
	  .help = "With --seal-key-file, of files that are only read: require, those that are not "
		  "sealed are refused, because the memory server could put any content in the "
		  "place of a sealed one; allow, they are read as they are." },
	{ .name = "seal-state",
	  .env = ENV "SEAL_STATE",
	  .type = SODA_OPT_STRING,
	  AT(seal_state),
	  .arg = "DIR",
	  .help = "Where keys, versions and tags of --seal lie, so that the next agent on this "
		  "machine finds them if this one dies: a directory of its own on a tmpfs, mode "
		  "0700, which is made where it is not there. Default: in the agent's memory; then "
		  "what is sealed is lost with it, and "
		  "is SIGBUS." },
	{ .name = "seal-memory",
	  .env = ENV "SEAL_MEMORY",
	  .type = SODA_OPT_SIZE,
	  AT(seal_memory),
	  .arg = "SIZE",
	  .def = "1G",
	  .min = 1u << 20,
	  .help = "Memory that the versions and tags of --seal may come to have, 24 bytes for 4 "
		  "KiB, of a file 56, with --seal-state 88: objects for which they could be more "
		  "are refused." },
	{ .name = "seal-keep",
	  .env = ENV "SEAL_KEEP",
	  .type = SODA_OPT_TIME_MS,
	  AT(seal_keep_ms),
	  .arg = "TIME",
	  .def = "1h",
	  .help = "How long keys, versions and tags are kept of a client that has lost its "
		  "connections, or that used the agent before this one, and has not come back. Not "
		  "less than the server's --grace: what a client has there is lost with them." },
	{ .name = "dynamic",
	  .env = ENV "DYNAMIC",
	  .type = SODA_OPT_BOOL,
	  AT(dynamic),
	  .def = "yes",
	  .help = "Cache what programs read, fetched ahead in large entries, where that pays." },
	{ .name = "adaptive",
	  .env = ENV "ADAPTIVE",
	  .type = SODA_OPT_BOOL,
	  AT(adaptive),
	  .def = "yes",
	  .help = "Decide for each object whether the dynamic cache pays, as --prefetch-limit "
		  "says; without it, it is on for all, without a limit." },
	{ .name = "prefetch-limit",
	  .env = ENV "PREFETCH_LIMIT",
	  .type = SODA_OPT_CHOICE,
	  AT(limit),
	  .arg = "LIMIT",
	  .def = "both",
	  .choices = limits,
	  .help = "What decides for an object: budget, what is fetched ahead and not asked for is "
		  "at most 3 % of what programs ask for; model, the hits against the two "
		  "bandwidths, as in the paper; both must agree." },
	{ .name = "cache-bytes",
	  .env = ENV "CACHE_BYTES",
	  .type = SODA_OPT_SIZE,
	  AT(cache_bytes),
	  .arg = "SIZE",
	  .def = "1G",
	  .min = 128u << 10,
	  .help = "Of the dynamic cache. The memory is taken as it is used." },
	{ .name = "entry-bytes",
	  .env = ENV "ENTRY_BYTES",
	  .type = SODA_OPT_SIZE,
	  AT(entry_bytes),
	  .arg = "SIZE",
	  .def = "1M",
	  .min = SODA_CACHE_ENTRY_MIN,
	  .max = SODA_CACHE_ENTRY_MAX,
	  .help = "What the dynamic cache fetches at a time: a power of two, at least the "
		  "programs' chunks." },
	{ .name = "policy",
	  .env = ENV "POLICY",
	  .type = SODA_OPT_STRING,
	  AT(policy),
	  .arg = "NAME",
	  .def = "stream",
	  .help = "What the dynamic cache fetches and evicts: stream, random (as in the paper), or "
		  "the name of a shared object in --policy-dir." },
	{ .name = "policy-dir",
	  .env = ENV "POLICY_DIR",
	  .type = SODA_OPT_STRING,
	  AT(policy_dir),
	  .arg = "DIR",
	  .help = "Directory of policies, NAME.so. Default: none." },
	{ .name = "static",
	  .env = ENV "STATIC",
	  .type = SODA_OPT_BOOL,
	  AT(statics),
	  .def = "yes",
	  .help = "Let programs put ranges into the static cache: SODA_STATIC_CACHE of "
		  "soda_advise(3)." },
	{ .name = "static-bytes",
	  .env = ENV "STATIC_BYTES",
	  .type = SODA_OPT_SIZE,
	  AT(static_bytes),
	  .arg = "SIZE",
	  .def = "1G",
	  .help = "Most that the static cache may hold, of all programs; beside it half of "
		  "--store, for objects that are there." },
	{ .name = "static-rule",
	  .env = ENV "STATIC_RULE",
	  .type = SODA_OPT_LIST,
	  AT(static_rule),
	  .arg = "PATTERN",
	  .help = "Objects whose name, given by soda_set_name(3), matches (see glob(7)) go into "
		  "the static cache as a whole, and cannot be stored to from then on; several, "
		  "separated by commas, or the option again." },
	{ .name = "store",
	  .env = ENV "STORE",
	  .type = SODA_OPT_SIZE,
	  AT(store_bytes),
	  .arg = "SIZE",
	  .def = "0",
	  .help = "Keep what programs on this machine read of READ_ONLY files once for all of a "
		  "user's programs, in so much memory: at least 8M. They connect by shm, and map "
		  "it; the agent's memory cgroup pays for it. More than that may ever have, or "
		  "than the machine has, is refused. It takes half of the processor time where "
		  "shared memory may have pages of 64 KiB (soda doctor says how). 0: each program "
		  "has copies of its own." },
	{ .name = "move-memory",
	  .env = ENV "MOVE_MEMORY",
	  .type = SODA_OPT_SIZE,
	  AT(move_bytes),
	  .arg = "SIZE",
	  .def = "0",
	  .help = "Memory for buffers that programs fill and others read, by soda_move(3). Each "
		  "buffer's is taken when it is reserved. Tenants have parts of it. 0: there are "
		  "none." },
	{ .name = "msg-memory",
	  .env = ENV "MSG_MEMORY",
	  .type = SODA_OPT_SIZE,
	  AT(msg_bytes),
	  .arg = "SIZE",
	  .def = "0",
	  .help = "Memory for messages under way between programs, by soda_msg_start(3): of each "
		  "rank of a job 128K to 1M, as there is. Tenants have parts of it. 0: no messages "
		  "are routed." },
	{ .name = "msg-inbox",
	  .env = ENV "MSG_INBOX",
	  .type = SODA_OPT_SIZE,
	  AT(msg_inbox),
	  .arg = "SIZE",
	  .def = "1M",
	  .min = SODA_MSG_INBOX_LEAST,
	  .max = SODA_MSG_INBOX_MOST,
	  .help = "Of --msg-memory at most so much for what waits for one rank; a power of two, or "
		  "what is next below it." },
	{ .name = "msg-transfer",
	  .env = ENV "MSG_TRANSFER",
	  .type = SODA_OPT_SIZE,
	  AT(msg_transfer),
	  .arg = "SIZE",
	  .def = "48K",
	  .min = 1,
	  .max = SODA_MSG_PACKET_MAX,
	  .help = "So many bytes of messages for the ranks of one other agent travel at once; "
		  "fewer wait for --msg-wait." },
	{ .name = "msg-wait",
	  .env = ENV "MSG_WAIT",
	  .type = SODA_OPT_UINT,
	  AT(msg_wait_us),
	  .arg = "US",
	  .def = "300",
	  .max = 1000000,
	  .help = "Microseconds that fewer than --msg-transfer bytes wait for more." },
	{ .name = "msg-threads",
	  .env = ENV "MSG_THREADS",
	  .type = SODA_OPT_UINT,
	  AT(msg_threads),
	  .arg = "N",
	  .def = "0",
	  .max = 1024,
	  .help = "Threads that route messages at the same time. Each rank, and each other agent, "
		  "has one; more than these wait for their turn. 0: no limit." },
	{ .name = "write-budget",
	  .env = ENV "WRITE_BUDGET",
	  .type = SODA_OPT_SIZE,
	  AT(write_budget),
	  .arg = "SIZE",
	  .def = "32M",
	  .min = 4u << 20,
	  .help = "Written data of one client that the agent acknowledges before the server has "
		  "it; beyond it acknowledgements wait." },
	{ .name = "client-credit",
	  .env = ENV "CLIENT_CREDIT",
	  .type = SODA_OPT_SIZE,
	  AT(client_credit),
	  .arg = "SIZE",
	  .def = "8M",
	  .min = 4u << 20,
	  .help = "Data that one client may have asked for and not yet taken; its further reads "
		  "wait. Less while others ask for less: twice what they have on average." },
	{ .name = "buffers",
	  .env = ENV "BUFFERS",
	  .type = SODA_OPT_SIZE,
	  AT(buffers),
	  .arg = "SIZE",
	  .def = "1G",
	  .min = 8u << 20,
	  .help = "Memory for both, of all clients together, half for writes and half for reads. "
		  "Where it is used up each client goes on with one write, and with 256 KiB of "
		  "reads, at a time. Tenants have parts of it." },
	{ .name = "window",
	  .env = ENV "WINDOW",
	  .type = SODA_OPT_SIZE,
	  AT(window),
	  .arg = "SIZE",
	  .def = "16M",
	  .min = 4u << 20,
	  .help = "Data that is asked of a server at a time, for all clients; they take turns in "
		  "it.  Each server of a pool has a window of its own." },
	{ .name = "channels",
	  .env = ENV "CHANNELS",
	  .type = SODA_OPT_UINT,
	  AT(channels),
	  .arg = "N",
	  .def = "0",
	  .max = 16,
	  .help = "Connections to the server for each client's reads; one more carries its writes. "
		  "0: one a worker; with async, and processors to spare for completers, half as "
		  "many as processors, at most 4." },
	{ .name = "completers",
	  .env = ENV "COMPLETERS",
	  .type = SODA_OPT_UINT,
	  AT(completers),
	  .arg = "N",
	  .def = "0",
	  .max = 64,
	  .help = "Threads that take in what the server answers; 0: half as many as processors, at "
		  "most 4." },
	SODA_DAEMON_WORKERS(
		ENV, "Threads that receive from programs, of each address; 0: one a processor, at"
		     " most 4."),
	SODA_DAEMON_NUMA_NODE(
		ENV,
		"Run on this NUMA node (1) and take memory, the caches' too, from it first; or on"
		" several (0,2), or all (interleave), and from them in turn. Choose the node of"
		" the network device."),
	{ .name = "answer",
	  .env = ENV "ANSWER",
	  .type = SODA_OPT_CHOICE,
	  AT(answer),
	  .arg = "WAY",
	  .def = "write",
	  .choices = answers,
	  .help = "How reads that come by verbs are answered: write, straight into the program's "
		  "buffer, or send, into the next buffer that the program has posted." },
	{ .name = "timeout",
	  .env = ENV "TIMEOUT",
	  .type = SODA_OPT_TIME_MS,
	  AT(timeout_ms),
	  .arg = "TIME",
	  .def = "20s",
	  .min = 10,
	  .help = "How long the server may take to answer before its connections count as lost." },
	{ .name = "grace",
	  .env = ENV "GRACE",
	  .type = SODA_OPT_TIME_MS,
	  AT(grace_ms),
	  .arg = "TIME",
	  .def = "60s",
	  .help = "How long written data of a client that has gone is kept while the server cannot "
		  "be reached. Then it is dropped, and a client that comes back learns that it is "
		  "lost. With --tenants or --key-file also how long a client that has lost its "
		  "connections may come back." },
	SODA_DAEMON_DRAIN(ENV),
	SODA_DAEMON_ALLOW_OTHER(ENV, "the agent's own and root."),
	SODA_DAEMON_MAX_CLIENTS(ENV),
	SODA_DAEMON_MAX_CONNECTIONS(ENV),
	SODA_DAEMON_PARENT_FD("for an agent that belongs to one process."),
	SODA_DAEMON_METRICS(ENV),
	SODA_DAEMON_CONFIG(ENV, "soda-dpu-agent"),
	SODA_DAEMON_LOG_LEVEL,
};

static const char description[] =
	"Stands between the programs of a compute node and their memory server, on the node's DPU "
	"or on spare processors of the node, and takes the work of moving data from the programs. "
	"Programs name it in SODA_DPU instead of a server in SODA_SERVER. Once it accepts "
	"connections it prints one line 'READY ADDRESS' for each address on standard output, and "
	"tells the service manager (NOTIFY_SOCKET).\n"
	"\n"
	"Each program is a client of the memory server as it would be without the agent: quotas, "
	"files, single writers and grace times are the server's. The agent keeps nothing that a "
	"restart would need, but with --seal the keys (--seal-state): programs reconnect to a "
	"restarted agent and go on. With --tenants and --key-file, before a memory server that has "
	"tenants, each shows the token that the server has given it by way of the agent before, "
	"whose --key-file was the same. With only one of the two options what proofs need ends "
	"with the agent, and the objects of its programs are lost, as if the memory server had "
	"died.\n"
	"\n"
	"Writes are acknowledged as soon as the agent has them, and are brought to the server "
	"then, also when the program has ended; soda_sync(3) waits until they are there. If the "
	"agent is killed, programs that live on still have what it had acknowledged and not "
	"written, and write it back through the next one.\n"
	"\n"
	"Two agents may stand in a row: one on the node, with --store and reached by shm, in front "
	"of one on its DPU, which the first one's --server names and which is reached by tcp or "
	"verbs. A third one, or a circle, is refused. The second one acknowledges a write when the "
	"memory server has it: so it may die without a loss, and soda_sync means what it means "
	"with one agent. Caching advice, and the rules of both, are followed by the first one that "
	"has such a cache: with --static=no on the node static ranges lie on the DPU.\n"
	"\n"
	"With several servers in --server the agent stands in front of a pool: a program has a "
	"session with the agent for each of them, and places its objects there as it would without "
	"the agent, with SODA_REDUNDANCY on several. Writes are then acknowledged when the server "
	"has them. The next agent at its address must have the same servers. With --store a file "
	"that several servers have is there once, whichever it is read from.\n"
	"\n"
	"With etcd://HOST:PORT[,...]/POOL the pool is what is registered there (--pool of "
	"soda-mem-server(1)), at most 16 servers. One that registers later is used by "
	"programs that run within some seconds; one that is not registered any more stays for "
	"those that have memory there. While etcd is away nothing changes for the agent and its "
	"programs; an agent that starts needs it.\n"
	"\n"
	"SIGTERM or SIGINT starts a drain: no new client is taken, those that are there may finish "
	"for the time of --drain, then every connection is closed, what was acknowledged is "
	"written, and the agent ends. A second signal ends it at once, without writing.";

static const char epilogue[] = SODA_DAEMON_MAN_ENVIRONMENT
	".SH EXIT STATUS\n.TP\n.B 0\nended by a signal or with its parent, nothing lost\n"
	".TP\n.B 1\nit could not start, or acknowledged data could not be written (the log says"
	" whose)\n.TP\n.B 2\nwrong options, environment or INI file\n"
	".SH EXAMPLES\nServe the programs of this node:\n.PP\n.RS\n.nf\n"
	"soda\\-dpu\\-agent \\-\\-server tcp://10.0.0.1:7001 \\-\\-listen tcp://127.0.0.1:7002\n"
	"SODA_DPU=tcp://127.0.0.1:7002 ./program\n.fi\n.RE\n"
	".PP\nOne copy on the node of what its programs read, in front of the agent on its DPU:\n"
	".PP\n.RS\n.nf\n"
	"dpu$ soda\\-dpu\\-agent \\-\\-server tcp://10.0.0.1:7001 \\-\\-listen"
	" tcp://192.168.100.2:7002\n"
	"host$ soda\\-dpu\\-agent \\-\\-server tcp://192.168.100.2:7002 \\-\\-store 8G \\-\\-listen"
	" shm:///run/soda.sock\n"
	"host$ SODA_DPU=shm:///run/soda.sock ./program\n.fi\n.RE\n"
	".SH SEE ALSO\n.BR soda\\-mem\\-server (1),\n.BR soda (1),\n.BR soda_move (3),\n.BR "
	"soda_msg_start (3),\n.BR "
	"soda_sync (3)\n";

const struct soda_conf soda_dpu_conf = {
	.program = "soda-dpu-agent",
	.summary = "move the data between the programs of this node and their memory server",
	.args = "",
	.description = description,
	.epilogue = epilogue,
	.options = options,
	.options_n = sizeof(options) / sizeof(options[0]),
};
