/* SPDX-License-Identifier: BSD-3-Clause */
#include "messages/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "wire/msg_rings.h"

/* The table of launch.h. */
static const struct launcher {
	const char *rank, *ranks;
	const char *prefix, *job, *step; /* of a name; NULL: there is none */
} launchers[] = {
	{ "SODA_MSG_RANK", "SODA_MSG_RANKS", NULL, NULL, NULL },
	{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "ompi", "PMIX_NAMESPACE", NULL },
	{ "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "slurm", "SLURM_JOB_ID", "SLURM_STEP_ID" },
	{ "PMI_RANK", "PMI_SIZE", "pmi", "PMI_JOBID", NULL },
	{ "PMIX_RANK", "SODA_MSG_RANKS", "pmix", "PMIX_NAMESPACE", NULL },
};

static __attribute__((format(printf, 3, 4))) int fail(struct soda_why *why, int err,
						      const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return err;
}

/* A variable that is set to something; NULL: it is not. */
static const char *get(const char *name)
{
	const char *text = name ? getenv(name) : NULL;

	return text && *text ? text : NULL;
}

/*
 * Who has started this process; NULL: nobody who says so. A batch script has a SLURM_PROCID, too,
 * and is no step of tasks.
 */
static const struct launcher *find(void)
{
	for (unsigned i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		const struct launcher *l = &launchers[i];

		if (get(l->rank) && (strcmp(l->rank, "SLURM_PROCID") != 0 || get(l->ranks)))
			return l;
	}
	return NULL;
}

static int get_number(const char *name, uint32_t *value_p, struct soda_why *why)
{
	const char *text = get(name);
	unsigned long value;
	char *end;

	if (!text)
		return fail(why, -EINVAL, "%s is not set: how many ranks are there?", name);
	value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || value > SODA_MSG_RANKS)
		return fail(why, -EINVAL, "%s=%.40s is not a number of 0 to %u", name, text,
			    SODA_MSG_RANKS);
	*value_p = (uint32_t)value;
	return 0;
}

int soda_launch_find(struct soda_launch *launch_p, struct soda_why *why)
{
	const struct launcher *l = find();
	struct soda_launch launch;
	int ret;

	if (!l)
		return fail(why, -EINVAL,
			    "no rank is named: say rank and ranks, set SODA_MSG_RANK and"
			    " SODA_MSG_RANKS, or start with soda msg run, mpirun or srun");
	ret = get_number(l->rank, &launch.rank, why);
	if (ret == 0)
		ret = get_number(get("SODA_MSG_RANKS") ? "SODA_MSG_RANKS" : l->ranks, &launch.ranks,
				 why);
	if (ret == 0)
		*launch_p = launch;
	return ret;
}

int soda_launch_name(char name[SODA_WIRE_MAX_NAME + 1], struct soda_why *why)
{
	const char *said = get("SODA_MSG_JOB");
	const struct launcher *l = find();
	int n;

	if (said)
		n = snprintf(name, SODA_WIRE_MAX_NAME + 1, "%s", said);
	else if (l && get(l->job) && (!l->step || get(l->step)))
		n = snprintf(name, SODA_WIRE_MAX_NAME + 1, "%s.%s%s%s", l->prefix, get(l->job),
			     l->step ? "." : "", l->step ? get(l->step) : "");
	else
		return fail(why, -EINVAL,
			    "the job has no name: say it, or set SODA_MSG_JOB to the same text"
			    " for all of its ranks, and to another one for each job");
	if (n > (int)SODA_WIRE_MAX_NAME)
		return fail(why, -EINVAL, "a job's name has at most %u bytes", SODA_WIRE_MAX_NAME);
	return 0;
}

/* Only its owner, and that is us, has been able to say what is in this file. */
static int check_private(int fd, const char *path, struct soda_why *why)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail(why, -errno, "SODA_MSG_KEY_FILE=%.100s: %s", path,
			    soda_strerror(-errno));
	if (!S_ISREG(st.st_mode))
		return fail(why, -EINVAL, "SODA_MSG_KEY_FILE=%.100s is not a file", path);
	if (st.st_uid != geteuid())
		return fail(why, -EACCES, "SODA_MSG_KEY_FILE=%.100s is user %u's, not yours", path,
			    (unsigned)st.st_uid);
	if (st.st_mode & 077)
		return fail(why, -EACCES,
			    "SODA_MSG_KEY_FILE=%.100s: others may read or write it (mode %03o):"
			    " chmod 600, and another key",
			    path, (unsigned)st.st_mode & 0777);
	return 0;
}

static int read_key(int fd, const char *path, char key[SODA_LAUNCH_KEY_MAX + 1],
		    struct soda_why *why)
{
	ssize_t n = read(fd, key, SODA_LAUNCH_KEY_MAX + 1);
	size_t length;

	if (n < 0)
		return fail(why, -errno, "SODA_MSG_KEY_FILE=%.100s: %s", path,
			    soda_strerror(-errno));
	for (length = 0; length < (size_t)n && key[length] != '\n'; length++)
		if (!key[length])
			return fail(why, -EINVAL, "SODA_MSG_KEY_FILE=%.100s is not text", path);
	if (length < SODA_LAUNCH_KEY_MIN || length > SODA_LAUNCH_KEY_MAX)
		return fail(why, -EINVAL,
			    "SODA_MSG_KEY_FILE=%.100s: its first line is the key, of %d to %d"
			    " bytes",
			    path, SODA_LAUNCH_KEY_MIN, SODA_LAUNCH_KEY_MAX);
	key[length] = 0;
	return 0;
}

int soda_launch_key(char key[SODA_LAUNCH_KEY_MAX + 1], struct soda_why *why)
{
	const char *said = getenv("SODA_MSG_KEY"), *path = get("SODA_MSG_KEY_FILE");
	int fd, ret;

	if (said || !path) {
		if (said && strlen(said) > SODA_LAUNCH_KEY_MAX)
			return fail(why, -EINVAL, "SODA_MSG_KEY has more than %d bytes",
				    SODA_LAUNCH_KEY_MAX);
		snprintf(key, SODA_LAUNCH_KEY_MAX + 1, "%s", said ? said : "");
		return 0;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return fail(why, -errno, "SODA_MSG_KEY_FILE=%.100s: %s", path,
			    soda_strerror(-errno));
	ret = check_private(fd, path, why);
	if (ret == 0)
		ret = read_key(fd, path, key, why);
	close(fd);
	return ret;
}

/* A number within bounds, where the variable is set. */
static int get_bounded(const char *name, uint32_t least, uint32_t most, uint32_t *value_p,
		       struct soda_why *why)
{
	const char *text = get(name);
	unsigned long value;
	char *end;

	if (!text)
		return 0;
	value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || value < least || value > most)
		return fail(why, -EINVAL, "%s=%.40s is not a number of %u to %u", name, text, least,
			    most);
	*value_p = (uint32_t)value;
	return 0;
}

int soda_launch_sizes(struct soda_launch_sizes *sizes_p, struct soda_why *why)
{
	struct soda_launch_sizes sizes = { SODA_MSG_PACKET_MAX, SODA_RING_SLOTS,
					   SODA_MSG_FLUSH_US };
	int ret = get_bounded("SODA_MSG_PACKET", SODA_MSG_SLOT_LEAST, SODA_MSG_PACKET_MAX,
			      &sizes.packet_bytes, why);

	sizes.packet_bytes &= ~7u;
	if (ret == 0)
		ret = get_bounded("SODA_MSG_SLOTS", 1, SODA_RING_SLOTS, &sizes.slots, why);
	if (ret == 0)
		ret = get_bounded("SODA_MSG_FLUSH_US", 1, 1000000, &sizes.flush_us, why);
	if (ret == 0)
		*sizes_p = sizes;
	return ret;
}
