/* SPDX-License-Identifier: BSD-3-Clause */
/* The option table, and the words of the man page. */
#include "mem_server/life/server.h"
#include "wire/pool.h"

#define ENV "SODA_MEM_SERVER_"
#define AT(field) .offset = offsetof(struct soda_server_options, field)

static const struct soda_option options[] = {
	SODA_DAEMON_LISTEN(
		ENV, "tcp://127.0.0.1:7001",
		"Where clients connect: tcp://HOST:PORT, verbs://HOST:PORT (RDMA), shm:///PATH or"
		" shm://@NAME; several, separated by commas, or the option again. Port 0 picks a"
		" free one."),
	{ .name = "capacity",
	  .env = ENV "CAPACITY",
	  .letter = 'c',
	  .type = SODA_OPT_SIZE,
	  AT(capacity),
	  .arg = "SIZE",
	  .min = 2u << 20,
	  .help = "Memory that may be promised to clients. Default: 80 % of the memory available "
		  "at start to the machine, and to the server's cgroups (memory.max, memory.high); "
		  "all free huge pages with --hugepages." },
	{ .name = "quota",
	  .env = ENV "QUOTA",
	  .letter = 'q',
	  .type = SODA_OPT_SIZE,
	  AT(quota),
	  .arg = "SIZE",
	  .help = "Most that one client may have; 0: no limit but the capacity." },
	{ .name = "export",
	  .env = ENV "EXPORT",
	  .letter = 'e',
	  .type = SODA_OPT_STRING,
	  AT(export_dir),
	  .arg = "DIR",
	  .help = "Directory of the files that clients may open. Default: none." },
	{ .name = "tenants",
	  .env = ENV "TENANTS",
	  .type = SODA_OPT_STRING,
	  AT(tenants),
	  .arg = "FILE",
	  .help = "Serve the tenants of this file only (soda-tenant-add(1) makes it), who prove "
		  "their keys; with quotas and directories of their own, instead of --export. Read "
		  "again on SIGHUP. Default: all that can connect are served." },
	{ .name = "domain",
	  .env = ENV "DOMAIN",
	  .type = SODA_OPT_STRING,
	  AT(domain),
	  .arg = "NAME",
	  .max = SODA_WIRE_DOMAIN_MAX,
	  .help = "The failure domain of the server, rack1 for one: what fails together, by a "
		  "switch or a power supply. Programs that use a pool of servers with redundancy "
		  "never place two copies of the same data in one domain. Default: each server is "
		  "a domain of its own." },
	{ .name = "pool",
	  .env = ENV "POOL",
	  .type = SODA_OPT_STRING,
	  AT(registry),
	  .arg = "etcd://HOST:PORT[,...]/NAME",
	  .help = "Register the server in etcd as a member of this pool, by a key with a lease: "
		  "address, memory, failure domain and state. Programs find it by soda run "
		  "--server with the same words. While etcd is away the server goes on, and is "
		  "registered again later. Default: none, programs name the server." },
	{ .name = "pool-address",
	  .env = ENV "POOL_ADDRESS",
	  .type = SODA_OPT_STRING,
	  AT(pool_address),
	  .arg = "ADDRESS",
	  .help = "The address that --pool tells programs. Default: the first of --listen." },
	SODA_ETCD_CA(ENV "ETCD_CA", AT(etcd.ca)),
	SODA_ETCD_CERT(ENV "ETCD_CERT", AT(etcd.cert)),
	SODA_ETCD_KEY(ENV "ETCD_KEY", AT(etcd.key)),
	SODA_ETCD_USER(ENV "ETCD_USER", AT(etcd.user_file)),
	SODA_DAEMON_TLS(ENV, ""),
	SODA_DAEMON_TLS_CERTIFICATES(ENV, ""),
	{ .name = "grace",
	  .env = ENV "GRACE",
	  .type = SODA_OPT_TIME_MS,
	  AT(grace_ms),
	  .arg = "TIME",
	  .def = "60s",
	  .help = "How long the regions of a client that has no connection are kept." },
	{ .name = "own-clients",
	  .env = ENV "OWN_CLIENTS",
	  .type = SODA_OPT_BOOL,
	  AT(own_clients),
	  .def = "no",
	  .help = "Clients are programs of this machine, with no agent before them: the regions of "
		  "one whose process has ended are freed at once, and not after --grace. That is "
		  "how libsoda starts private servers." },
	SODA_DAEMON_DRAIN(ENV),
	{ .name = "close-wait",
	  .env = ENV "CLOSE_WAIT",
	  .type = SODA_OPT_TIME_MS,
	  AT(close_ms),
	  .arg = "TIME",
	  .def = "10s",
	  .min = 1,
	  .help = "How long closing a region waits for its requests under way." },
	SODA_DAEMON_WORKERS(
		ENV, "Threads that serve reads and writes, of each address; 0: one a processor, at"
		     " most 4."),
	SODA_DAEMON_NUMA_NODE(
		ENV,
		"Take the clients' memory from this NUMA node (1), from several in turn (0,2), or"
		" from all (interleave), never from others, and run there, where they have"
		" processors. The default --capacity is of their memory then. Choose the node of"
		" the network device."),
	{ .name = "hugepages",
	  .env = ENV "HUGEPAGES",
	  .type = SODA_OPT_BOOL,
	  AT(hugepages),
	  .def = "no",
	  .help = "Take memory from the pool of 2 MiB huge pages (vm.nr_hugepages)." },
	{ .name = "populate",
	  .env = ENV "POPULATE",
	  .type = SODA_OPT_BOOL,
	  AT(populate),
	  .def = "yes",
	  .help = "Allocate all of a region when it is opened, where programs of this machine map "
		  "it (shm), so that what is promised is there. no: as it is used; where the "
		  "machine has no more then, it ends somebody. That is how libsoda starts the "
		  "private servers." },
	SODA_DAEMON_ALLOW_OTHER(ENV, "the server's own and root. Files are opened with the "
				     "permissions of the client's user then."),
	SODA_DAEMON_MAX_CLIENTS(ENV),
	{ .name = "max-regions",
	  .env = ENV "MAX_REGIONS",
	  .type = SODA_OPT_UINT,
	  AT(max_regions),
	  .arg = "N",
	  .def = "16384",
	  .min = 1,
	  .max = 1u << 20,
	  .help = "Most regions at a time, of all clients; each takes a file descriptor and a "
		  "mapping. Half of them are kept for tenants, in equal parts." },
	SODA_DAEMON_MAX_CONNECTIONS(ENV),
	SODA_DAEMON_METRICS(ENV),
	SODA_DAEMON_PARENT_FD("for a server that belongs to one process, or to those of one soda "
			      "run. Its standard error is "
			      "that process's, so that level info of the log is left out."),
	SODA_DAEMON_CONFIG(ENV, "soda-mem-server"),
	SODA_DAEMON_LOG_LEVEL,
};

static const char description[] =
	"Holds fabric-attached memory: objects that programs allocate with soda_alloc(3) live in "
	"the DRAM of the node that runs this server, and files of its export directory can be "
	"opened as objects with soda_alloc_file(3). Once it accepts connections it prints one line "
	"'READY ADDRESS' for each address, the one of --metrics last, on standard output, and "
	"tells the service manager (NOTIFY_SOCKET).\n"
	"\n"
	"Reservation is accounting: an object is charged, rounded up to 2 MiB, when it is "
	"allocated, and refused at once with ENOSPC (over the capacity) or EDQUOT (over the "
	"client's quota); what has been allocated can always be written. Memory that is freed goes "
	"back to the system. A local program that keeps a region's memory mapped when it has "
	"closed it has it on its account until it lets go, and so has the server; READ_ONLY files "
	"count for a client as long as they are open.\n"
	"\n"
	"Files. No name leaves the export directory, by '..', as an absolute path or through a "
	"symbolic link; links that stay inside are followed where the kernel can check that "
	"(openat2, Linux 5.6), and refused elsewhere. READ_ONLY files are loaded once for all "
	"clients and kept while in use. A WRITABLE file has one client and no reader; its dirty "
	"data is written when the client synchronises or frees it, leaves, stays away longer than "
	"the grace time, and when the server ends by SIGTERM. A PRIVATE file is in use only while "
	"it is loaded.\n"
	"\n"
	"Clients. A client that loses its connections may come back within the grace time and find "
	"its regions. One that does not is dead: its regions are freed. A tcp address serves "
	"everybody who can connect to it, with the server's own permissions for files: keep it on "
	"a network "
	"that you trust. With --tenants a client must prove the key of a tenant of that file, has "
	"that tenant's directories and a share of its quota, and sees its statistics only. Data "
	"travel in clear, but where --tls require has them encrypted, or the program seals them. "
	"A shm address serves the server's own user and root, unless --allow-other is given. Of a "
	"client of another user the kernel tells user and groups (up to 64), and their "
	"permissions decide, by the bits for owner, group and others: search for each directory "
	"from the export directory on, read, read and write for WRITABLE, write for the directory "
	"in which CREATE makes a file. What is made belongs to that user, which a server that is "
	"not root cannot do: it refuses. "
	"Symbolic links and files with an access control list are refused to them, unless the list "
	"is on a file of their own, and so is writing to set-user-ID files. An agent in between is "
	"the client: what it may open, all of its programs may.\n"
	"\n"
	"SIGTERM or SIGINT starts a drain: no new client and no new region is taken, those that "
	"are there may finish for the time of --drain, then every connection is closed, dirty "
	"WRITABLE files are written, and the server ends. A second signal ends it at once, without "
	"writing.";

static const char epilogue[] = SODA_DAEMON_MAN_ENVIRONMENT
	".SH EXIT STATUS\n.TP\n.B 0\nended by a signal or with its parent, nothing lost\n"
	".TP\n.B 1\nit could not start, or changes to a WRITABLE file could not be written (the log"
	" says which)\n.TP\n.B 2\nwrong options, environment or INI file\n"
	".SH FILES\n.TP\n.I soda-mem-server.ini\nwherever\n.B \\-\\-config\nsays; an example is"
	" installed with the documentation.\n"
	".SH EXAMPLES\nServe 64 GiB and a directory of graphs to the network 10.0.0.0:\n.PP\n.RS\n"
	".nf\nsoda\\-mem\\-server \\-\\-listen tcp://10.0.0.1:7001 \\-\\-capacity 64G"
	" \\-\\-quota 16G \\-\\-export /srv/graphs\n.fi\n.RE\n.PP\n"
	"Serve programs of the same machine through shared memory:\n.PP\n.RS\n.nf\n"
	"soda\\-mem\\-server \\-\\-listen shm:///run/soda-mem-server/sock\n"
	"SODA_SERVER=shm:///run/soda-mem-server/sock ./program\n.fi\n.RE\n"
	".SH SEE ALSO\n.BR soda (1),\n.BR soda_alloc (3),\n.BR soda_alloc_file (3),\n"
	".BR soda\\-tenant\\-add (1),\n.BR soda_sync (3)\n";

const struct soda_conf soda_server_conf = {
	.program = "soda-mem-server",
	.summary = "serve the memory of this node to SODA programs",
	.args = "",
	.description = description,
	.epilogue = epilogue,
	.options = options,
	.options_n = sizeof(options) / sizeof(options[0]),
};
