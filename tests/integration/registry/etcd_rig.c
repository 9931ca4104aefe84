/* SPDX-License-Identifier: BSD-3-Clause */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "etcd_rig.h"
#include "registry/http.h"

bool rig_possible(void)
{
	return !system("etcd --version >/dev/null 2>&1");
}

/* Ports that are free now: etcd's nodes know each other's before they start. */
static void choose_ports(int *ports, int n)
{
	int fds[2 * RIG_NODES];

	for (int i = 0; i < n; i++) {
		struct sockaddr_in at = { .sin_family = AF_INET,
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t bytes = sizeof(at);

		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(fds[i], (struct sockaddr *)&at, sizeof(at)), 0);
		assert_int_equal(getsockname(fds[i], (struct sockaddr *)&at, &bytes), 0);
		ports[i] = ntohs(at.sin_port);
	}
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

static const char *scheme(const struct rig *rig)
{
	return rig->certificates ? "https" : "http";
}

static void become(const struct rig *rig, int node, pid_t parent)
{
	char name[8], data[160], log[160], client[64], peer[64], all[256] = "", cert[160], key[160],
								 ca[160];
	const char *argv[32] = { "etcd", "--name",
				 name,	 "--data-dir",
				 data,	 "--listen-client-urls",
				 client, "--advertise-client-urls",
				 client, "--listen-peer-urls",
				 peer,	 "--initial-advertise-peer-urls",
				 peer,	 "--initial-cluster",
				 all,	 "--heartbeat-interval",
				 "100",	 "--election-timeout",
				 "1000" };
	int n = 19, fd;

	snprintf(name, sizeof(name), "n%d", node);
	snprintf(data, sizeof(data), "%s/%s", rig->dir, name);
	snprintf(log, sizeof(log), "%s/%s.log", rig->dir, name);
	snprintf(client, sizeof(client), "%s://127.0.0.1:%d", scheme(rig), rig->port[node]);
	snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", rig->peer_port[node]);
	for (int i = 0; i < rig->n; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%sn%d=http://127.0.0.1:%d",
			 i ? "," : "", i, rig->peer_port[i]);
	if (rig->certificates) {
		snprintf(cert, sizeof(cert), "%s/cert.pem", rig->certificates);
		snprintf(key, sizeof(key), "%s/key.pem", rig->certificates);
		argv[n++] = "--cert-file";
		argv[n++] = cert;
		argv[n++] = "--key-file";
		argv[n++] = key;
	}
	if (rig->mutual) {
		snprintf(ca, sizeof(ca), "%s/ca.pem", rig->certificates);
		argv[n++] = "--client-cert-auth";
		argv[n++] = "--trusted-ca-file";
		argv[n++] = ca;
	}
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(fd, 1);
	dup2(fd, 2);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent)
		execvp(argv[0], (char *const *)argv);
	_exit(127);
}

void rig_start(struct rig *rig, int node)
{
	pid_t self = getpid();

	rig->pid[node] = fork();
	if (!rig->pid[node])
		become(rig, node, self);
	assert_true(rig->pid[node] > 0);
}

void rig_kill(struct rig *rig, int node)
{
	if (!rig->pid[node])
		return;
	kill(rig->pid[node], SIGKILL);
	waitpid(rig->pid[node], NULL, 0);
	rig->pid[node] = 0;
}

json_t *rig_ask(const struct rig *rig, int node, const char *path, const char *body, long *status_p)
{
	struct soda_http_answer answer = { .body = NULL };
	char url[128], ca[160], cert[160], key[160];
	struct soda_http_tls tls = { NULL, NULL, NULL };
	struct soda_http *http;
	struct soda_why why;
	json_t *all = NULL;

	snprintf(url, sizeof(url), "%s://127.0.0.1:%d/v3/%s", scheme(rig), rig->port[node], path);
	snprintf(ca, sizeof(ca), "%s/ca.pem", rig->certificates ? rig->certificates : "");
	snprintf(cert, sizeof(cert), "%s/cert.pem", rig->certificates ? rig->certificates : "");
	snprintf(key, sizeof(key), "%s/key.pem", rig->certificates ? rig->certificates : "");
	if (rig->certificates)
		tls.ca = ca;
	if (rig->mutual) {
		tls.cert = cert;
		tls.key = key;
	}
	if (soda_http_open(&tls, &http, &why))
		fail_msg("%s", why.text);
	if (!soda_http_post(http, url, NULL, body, 2000, &answer, &why) && answer.body)
		all = json_loadb(answer.body, answer.bytes, 0, NULL);
	if (status_p)
		*status_p = answer.status;
	free(answer.body);
	soda_http_close(http);
	return all;
}

void rig_do(const struct rig *rig, const char *path, const char *body)
{
	long status = 0;
	json_t *answer = rig_ask(rig, 0, path, body, &status);
	char *text = json_dumps(answer, 0);

	if (status != 200)
		fail_msg("etcd: %s %s: %ld %s", path, body, status, text ? text : "nothing");
	free(text);
	json_decref(answer);
}

void rig_await(const struct rig *rig)
{
	long status = 0;

	for (int i = 0; i < RIG_LOOKS && status != 200 && status != 400; i++) {
		for (int k = 0; k < rig->n && status != 200 && status != 400; k++)
			if (rig->pid[k]) /* one that wants a user answers, too */
				json_decref(rig_ask(rig, k, "kv/range", "{\"key\": \"YQ==\"}",
						    &status));
		usleep(RIG_LOOK_US);
	}
	if (status != 200 && status != 400)
		fail_msg("etcd does not answer; its nodes' logs: %s", rig->dir);
}

int rig_leader(const struct rig *rig)
{
	for (int i = 0; i < RIG_LOOKS; i++) {
		for (int k = 0; k < rig->n; k++) {
			json_t *all = rig->pid[k]
					      ? rig_ask(rig, k, "maintenance/status", "{}", NULL)
					      : NULL;
			const char *self = json_string_value(
				json_object_get(json_object_get(all, "header"), "member_id"));
			const char *leader = json_string_value(json_object_get(all, "leader"));
			bool found = self && leader && !strcmp(self, leader);

			json_decref(all);
			if (found)
				return k;
		}
		usleep(RIG_LOOK_US);
	}
	fail_msg("etcd has no leader");
	return -1;
}

void rig_open(struct rig *rig, int n, const char *below, const char *certificates, bool mutual)
{
	int ports[2 * RIG_NODES];

	*rig = (struct rig){ .n = n, .certificates = certificates, .mutual = mutual };
	snprintf(rig->dir, sizeof(rig->dir), "%.60s/etcd-XXXXXX", below);
	assert_non_null(mkdtemp(rig->dir));
	choose_ports(ports, 2 * n);
	strcpy(rig->list, "etcd://");
	for (int i = 0; i < n; i++) {
		rig->port[i] = ports[i];
		rig->peer_port[i] = ports[n + i];
		snprintf(rig->list + strlen(rig->list), sizeof(rig->list) - strlen(rig->list),
			 "%s127.0.0.1:%d", i ? "," : "", ports[i]);
	}
	for (int i = 0; i < n; i++)
		rig_start(rig, i);
	rig_await(rig);
}

void rig_close(struct rig *rig)
{
	for (int i = 0; i < rig->n; i++)
		rig_kill(rig, i);
}
