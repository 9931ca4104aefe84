/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing and applying the rules of rules.h. */
#include "transport/fault/rules.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int parse_number(const char *text, uint64_t max, uint64_t *value_p)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value > max)
		return -EINVAL;
	*value_p = value;
	return 0;
}

static int parse_action(const char *text, enum fault_action *action_p)
{
	static const char *const names[] = { [FAULT_FAIL] = "fail",
					     [FAULT_DELAY] = "delay",
					     [FAULT_DROP] = "drop",
					     [FAULT_CUT] = "cut",
					     [FAULT_GARBLE] = "garble" };

	for (unsigned i = FAULT_FAIL; i <= FAULT_GARBLE; i++) {
		if (strcmp(text, names[i]) == 0) {
			*action_p = i;
			return 0;
		}
	}
	return -EINVAL;
}

static int parse_ops(char *text, unsigned *ops_p)
{
	static const char *const names[] = { "read", "write", "call", "connect" };
	char *rest = NULL;

	*ops_p = 0;
	for (char *t = strtok_r(text, ",", &rest); t; t = strtok_r(NULL, ",", &rest)) {
		unsigned i = 0;

		while (i < 4 && strcmp(t, names[i]))
			i++;
		if (i == 4)
			return -EINVAL;
		*ops_p |= 1u << i;
	}
	return *ops_p ? 0 : -EINVAL;
}

static int parse_file(const char *text, char out[108])
{
	if (!*text || strlen(text) >= 108)
		return -EINVAL;
	strcpy(out, text);
	return 0;
}

static int parse_value(struct fault_rule *r, const char *key, char *value)
{
	uint64_t number = 0;
	int ret = -EINVAL;

	if (strcmp(key, "on") == 0)
		return parse_ops(value, &r->ops);
	if (strcmp(key, "while") == 0)
		return parse_file(value, r->while_file);
	if (strcmp(key, "once") == 0)
		return parse_file(value, r->once_file);
	if (strcmp(key, "after") == 0)
		return parse_number(value, UINT64_MAX, &r->after);
	if (strcmp(key, "count") == 0)
		return parse_number(value, UINT64_MAX, &r->count);
	if (strcmp(key, "rate") == 0) {
		ret = parse_number(value, 100, &number);
		r->rate_pct = (uint32_t)number;
	} else if (strcmp(key, "seed") == 0) {
		ret = parse_number(value, UINT64_MAX, &number);
		r->random = number * 2 + 1; /* never 0 */
	} else if (strcmp(key, "seeds") == 0) {
		ret = parse_number(value, UINT64_MAX, &number);
		r->random = number * 2 + 1;
		r->varies = true;
	} else if (strcmp(key, "ms") == 0) {
		ret = parse_number(value, 3600000, &number);
		r->ms = (uint32_t)number;
	} else if (strcmp(key, "status") == 0) {
		ret = parse_number(value, SODA_ST_MAX, &number);
		r->err = -soda_status_to_errno((unsigned)number);
	}
	return ret;
}

static int parse_pair(struct fault_rules *rules, char *pair)
{
	char *value = strchr(pair, '=');

	if (!value)
		return -EINVAL;
	*value++ = 0;
	if (strcmp(pair, "do") == 0) {
		if (rules->n == FAULT_RULES)
			return -EINVAL;
		rules->rule[rules->n++] = (struct fault_rule){
			.ops = FAULT_READ | FAULT_WRITE,
			.rate_pct = 100,
			.random = 3,
			.count = UINT64_MAX,
			.ms = 10,
			.err = -EIO,
		};
		return parse_action(value, &rules->rule[rules->n - 1].action);
	}
	return rules->n ? parse_value(&rules->rule[rules->n - 1], pair, value) : -EINVAL;
}

int soda_fault_parse(const char *text, struct fault_rules *rules_p, struct soda_why *why)
{
	char copy[1024], *rest = NULL;

	rules_p->n = 0;
	if (strlen(text) >= sizeof(copy)) {
		soda_why_set(why, "too many faults in one address");
		return -EINVAL;
	}
	strcpy(copy, text);
	for (char *p = strtok_r(copy, "&", &rest); p; p = strtok_r(NULL, "&", &rest)) {
		if (parse_pair(rules_p, p) == 0)
			continue;
		soda_why_set(
			why,
			"fault+ADDRESS: \"%.60s\" is not understood; expected "
			"do=fail|delay|drop|cut, then on, rate, seed, seeds, after, count, while, "
			"once, ms, status",
			p);
		return -EINVAL;
	}
	return 0;
}

static uint64_t next_random(uint64_t *state)
{
	/* xorshift64: Marsaglia, "Xorshift RNGs", 2003 */
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

void soda_fault_vary(struct fault_rules *rules, uint64_t connection)
{
	for (unsigned i = 0; i < rules->n; i++) {
		struct fault_rule *r = &rules->rule[i];

		if (r->varies)
			r->random = (r->random ^ (connection + 1) * 0x9e3779b97f4a7c15u) | 1;
	}
}

static bool applies(struct fault_rule *r)
{
	if (r->seen++ < r->after || r->done >= r->count)
		return false;
	if (r->rate_pct < 100 && next_random(&r->random) % 100 >= r->rate_pct)
		return false;
	if (r->while_file[0] && syscall(SYS_faccessat, AT_FDCWD, r->while_file, F_OK) < 0)
		return false;
	if (r->once_file[0] && syscall(SYS_unlinkat, AT_FDCWD, r->once_file, 0) < 0)
		return false;
	r->done++;
	return true;
}

const struct fault_rule *soda_fault_decide(struct fault_rules *rules, enum fault_op op)
{
	for (unsigned i = 0; i < rules->n; i++)
		if ((rules->rule[i].ops & (unsigned)op) && applies(&rules->rule[i]))
			return &rules->rule[i];
	return NULL;
}
