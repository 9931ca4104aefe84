# shellcheck shell=bash
# ./demo --pool N [--kill] [--agent]: the demo's applications with their memory spread over N memory servers; with --kill it lies
# on two of them each, and one is killed in the middle of each application; with --agent through a DPU agent in front of them.  Uses the demo's start_daemon, daemons, say, die, field, mib,
# $far, $rows, $tmp.

pool=0 pool_agent=false kill_one=false killed=0 # killed: the index of the next victim, or the last one
pool_addresses=() pool_pids=()

pool_list() { (IFS=, && echo "${pool_addresses[*]}"); }

start_pool() {
	local i
	for ((i = 0; i < pool; i++)); do
		start_daemon "memory server $((i + 1)) of $pool" soda-mem-server --listen tcp://127.0.0.1:0
		pool_addresses+=("$daemon_address")
		pool_pids+=("${daemons[0]}")
	done
	unset SODA_DPU SODA_SERVER
	if [ $pool_agent = true ]; then
		start_daemon "agent" soda-dpu-agent --listen "shm://$tmp/agent.sock" --server "$(pool_list)"
		export SODA_DPU=$daemon_address
	else
		SODA_SERVER=$(pool_list)
		export SODA_SERVER
	fi
	[ $kill_one = false ] || export SODA_REDUNDANCY=mirror:2
}

# Waits until the program has fetched half as many bytes as it has data, which is in the midst of its runs, then kills a server;
# and notes it in the file.  Not at all if the program ends before.
kill_amidst() { # PROGRAM_PID VICTIM_PID OBJECT_BYTES FILE
	local fetched
	while kill -0 "$1" 2>/dev/null; do
		pause 0.02
		fetched=$(soda stat --json "$1" 2>/dev/null | sed -n 's/.*"bytes_fetched": *\([0-9]*\).*/\1/p')
		[ "${fetched:-0}" -ge $(($3 / 2)) ] || continue
		kill -KILL "$2" && echo killed >"$4"
		return
	done
}

after_kill() { # APP
	[ -s "$tmp/$1.pool.killed" ] || die 1 "$1 had ended before its server was to be killed: give it more work (--repeat, --rmat)"
	say "$1 has lived on without memory server $((killed + 1)), which was killed"
	restart_server "$killed"
	killed=$(((killed + 1) % pool))
}

# The next application finds all N servers again: the one that was killed is started anew, where it was.
restart_server() { # INDEX
	local at=$1 pid=${pool_pids[$1]} i
	wait "$pid" 2>/dev/null
	for i in "${!daemons[@]}"; do
		[ "${daemons[i]}" != "$pid" ] || unset "daemons[$i]"
	done
	daemons=("${daemons[@]}")
	start_daemon "memory server $((at + 1)), anew," soda-mem-server --listen "${pool_addresses[at]}"
	pool_pids[at]=${daemons[0]}
}

# What the table has no room for: a line for each application.
tell_pool() {
	local row base
	echo "pool: $pool memory servers$([ $pool_agent = false ] || echo ' behind an agent')$([ $kill_one = false ] || echo ", each part of the data on two; one was killed in each application")."
	[ $kill_one = true ] || return 0
	printf '%-10s %14s %16s %14s\n' app "longest fault" "copies given up" "made anew"
	for row in "${rows[@]}"; do
		# shellcheck disable=SC2086
		set -- $row
		[ "$2" != dram ] || continue
		base=$tmp/$1.$2.json
		printf '%-10s %11d ms %16d %14s\n' "$1" $(($(field fault_max_ns "$base") / 1000000)) \
			"$(field copies_expelled "$base")" "$(mib "$(field rebuilt_bytes "$base")")"
	done
	echo "made anew: what was copied to the other servers before the application ended."
}

# The members that a row of --kill has more.
pool_json() { # APP MODE
	local base=$tmp/$1.$2.json
	[ $kill_one = true ] && [ "$2" != dram ] || return 0
	printf ', "longest_fault_ms": %d, "copies_expelled": %s, "rebuilt_bytes": %s' \
		$(($(field fault_max_ns "$base") / 1000000)) "$(field copies_expelled "$base")" "$(field rebuilt_bytes "$base")"
}
