/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that keep data, under `soda run`: snapshots that the child of a fork writes while its
 * parent goes on storing, and transfers past the page cache, many at once.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/proc.h"

enum { SECONDS = 300 };

/* Run a script by sh, with $SODA, and $D: a folder of its own. Returns what it has written. */
static const char *script(const char *text, int *status_p)
{
	static char said[16384];
	char dir[] = "/tmp/soda-stores-XXXXXX", line[64];
	size_t n = 0, got;
	FILE *f;

	assert_non_null(mkdtemp(dir));
	setenv("D", dir, 1);
	setenv("SODA", build_path("tools/soda/soda"), 1);
	setenv("SCRIPT", text, 1);
	snprintf(line, sizeof(line), "timeout -k 5 %d sh -c \"$SCRIPT\" 2>&1", SECONDS);
	f = popen(line, "r");
	assert_non_null(f);
	while (n < sizeof(said) - 1 && (got = fread(said + n, 1, sizeof(said) - 1 - n, f)))
		n += got;
	said[n] = 0;
	*status_p = pclose(f);
	snprintf(line, sizeof(line), "rm -rf %s", dir);
	assert_int_equal(system(line), 0);
	return said;
}

static void run_script(const char *text)
{
	int status;
	const char *said = script(text, &status);

	if (status)
		fail_msg("status %d: %s", status, said);
}

/*
 * BGSAVE of a real data set: what the file has, loaded without SODA, is what the keys were at the
 * fork, although all of them are set anew while the child saves, which it does slowly.  One program
 * is server and checker, by its name.
 */
static const char bgsave[] =
	"cd $D && S=$(command -v redis-server || command -v redis-check-rdb) && ln -s $S "
	"redis-server\n"
	"started=; trap 'kill -9 $started 2>/dev/null' EXIT\n"
	"c() { redis-cli -s $D/socket \"$@\"; }\n"
	"start() { \"$@\" ./redis-server --port 0 --unixsocket $D/socket --save '' --dir $D "
	"--dbfilename saved.rdb --enable-debug-command yes --rdb-key-save-delay 50 >log 2>&1 &\n"
	"  started=$!; n=0; until c ping >/dev/null 2>&1; do\n"
	"  n=$((n + 1)); test $n -lt 600 || { echo no server; cat log; exit 1; }; sleep 0.1; done; "
	"}\n"
	"start $SODA run --quiet --mem 8M --threshold 256 --\n"
	"c debug populate 20000 key 1000 >/dev/null; before=$(c debug digest); c bgsave "
	">/dev/null\n"
	"c eval 'for i=0,19999 do redis.call(\"set\", \"key:\"..i, string.rep(\"new\"..i, 200)) "
	"end' "
	"0 >/dev/null\n"
	"n=0; while c info persistence | grep -q rdb_bgsave_in_progress:1; do\n"
	"n=$((n + 1)); test $n -lt 1500 || { echo no end; exit 1; }; sleep 0.1; done\n"
	"c info persistence | grep -q rdb_last_bgsave_status:ok || { cat log; exit 1; }\n"
	"test $(c dbsize) = 20000 || exit 1; test \"$(c debug digest)\" != $before || exit 1\n"
	"c shutdown nosave; wait $started || { echo status $?; cat log; exit 1; }\n"
	"start env; after=$(c debug digest); c shutdown nosave; wait $started\n"
	"test ${#before} = 40 && test $before = $after || { echo $before $after; cat log; exit 1; "
	"}\n";

static void test_bgsave(void **state)
{
	if (system("command -v redis-cli >/dev/null 2>&1 && { command -v redis-server || "
		   "command -v redis-check-rdb; } >/dev/null 2>&1")) {
		print_message("SKIP: no redis-server here\n");
		skip();
	}
	run_script(bgsave);
}

/* The device has read and written what fio has asked for; io_uring is refused, or holds memory. */
static void test_fio(void **state)
{
	static const char verify[] =
		"cd $D && for m in inline handler; do SODA_MODE=$m $SODA run --quiet --mem 16M "
		"$RINGS -- fio "
		"--name=x --filename=$F --size=256M --bs=1M --rw=randwrite --verify=crc32c "
		"--ioengine=$E --iodepth=64 --direct=1 --thread >out 2>&1 || { cat out; exit 1; }; "
		"rm -f $F; done";
	char file[64];
	int status;

	if (system("command -v fio >/dev/null 2>&1")) {
		print_message("SKIP: no fio here\n");
		skip();
	}
	snprintf(file, sizeof(file), "/var/tmp/soda-fio-%d", (int)getpid());
	setenv("F", file, 1);
	if (system("dd if=/dev/zero of=$F bs=1M count=1 oflag=direct >/dev/null 2>&1")) {
		unlink(file);
		print_message("SKIP: no O_DIRECT in /var/tmp\n");
		skip();
	}
	setenv("RINGS", "", 1);
	setenv("E", "libaio", 1);
	run_script(verify);
	setenv("E", "io_uring", 1);
	/* EFAULT where there are rings */
	if (syscall(SYS_io_uring_setup, 1, NULL) && (errno == ENOSYS || errno == EPERM)) {
		print_message("SKIP: no io_uring here\n");
	} else {
		setenv("RINGS", "--io-uring=hold", 1);
		run_script(verify);
		setenv("RINGS", "", 1);
	}
	if (!strstr(script(verify, &status), "Function not implemented") || !status)
		fail_msg("io_uring is not refused: status %d", status);
	unlink(file);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bgsave),
		cmocka_unit_test(test_fio),
	};

	program_environment();
	if (argc == 2) /* one of them, by hand */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("run_stores", tests, NULL, NULL);
}
