/* SPDX-License-Identifier: BSD-3-Clause */
#include "soda/msg/net.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BRIDGE "soda-msg"

/* Never returns. Quietly: whether it has worked says the status. */
static void become_ip(const char *const *args)
{
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	dup2(null, STDERR_FILENO);
	execvp("ip", (char *const *)(uintptr_t)args);
	_exit(127);
}

/* ip(8), in the namespace ns, or this one where that is negative. 0, or -1. */
static int run_ip(int ns, const char *const *args)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		if (ns >= 0 && setns(ns, CLONE_NEWNET))
			_exit(126);
		become_ip(args);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && status == 0 ? 0 : -1;
}

#define IP(ns, ...) run_ip(ns, (const char *const[]){ "ip", __VA_ARGS__, NULL })

static int make_switch(void)
{
	if (unshare(CLONE_NEWNET))
		return -1;
	return IP(-1, "link", "add", BRIDGE, "type", "bridge") ||
			       IP(-1, "link", "set", BRIDGE, "up")
		       ? -1
		       : 0;
}

/* In a process that is not needed any more: one that leaves its namespace cannot come back. */
static bool try_all(void)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(make_switch() || soda_msg_net_begin(0));
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && status == 0;
}

bool soda_msg_net_make(void)
{
	if (try_all() && make_switch() == 0)
		return true;
	fputs("soda msg run: --links net: no network namespaces here (they need root, and ip, "
	      "bridges and veth of the kernel): agents reach each other by tcp on this machine\n",
	      stderr);
	return false;
}

void soda_msg_net_address(uint32_t agent, char text[SODA_MSG_NET_ADDRESS])
{
	snprintf(text, SODA_MSG_NET_ADDRESS, "10.93.0.%u", agent % 250 + 1);
}

int soda_msg_net_begin(uint32_t agent)
{
	char address[SODA_MSG_NET_ADDRESS], whole[SODA_MSG_NET_ADDRESS + 4], port[16];
	int hub = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), bad;

	soda_msg_net_address(agent, address);
	snprintf(whole, sizeof(whole), "%s/24", address);
	snprintf(port, sizeof(port), "agent%u", agent);
	/* the pair is made on the switch's side, where it has a name of its own for each agent */
	bad = hub < 0 || unshare(CLONE_NEWNET);
	if (!bad) {
		char mine[16];

		snprintf(mine, sizeof(mine), "%ld", (long)getpid());
		bad = IP(hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
			 mine) ||
		      IP(hub, "link", "set", port, "master", BRIDGE, "up") ||
		      IP(-1, "address", "add", whole, "dev", "eth0") ||
		      IP(-1, "link", "set", "lo", "up") || IP(-1, "link", "set", "eth0", "up");
	}
	if (hub >= 0)
		close(hub);
	return bad ? -1 : 0;
}

int soda_msg_net_enter(pid_t agent)
{
	char path[32];
	int ns, ret;

	snprintf(path, sizeof(path), "/proc/%ld/ns/net", (long)agent);
	ns = open(path, O_RDONLY | O_CLOEXEC);
	ret = ns < 0 ? -1 : setns(ns, CLONE_NEWNET);
	if (ns >= 0)
		close(ns);
	return ret;
}
