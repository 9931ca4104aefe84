# shellcheck shell=bash
# ./demo --messages: a histogram and shortest paths by ranks that send each other messages, which agents route.  Each program
# verifies itself.  Uses the demo's say, die, attend, micros, build, and $graph, $scale, $repeat, $json, $rows, $tmp.

ranks=4 nodes=2

# What a program of many ranks says, when it has ended: seconds messages bytes.
run_ranks() { # PROGRAM [ARGUMENT]...
	local out=$tmp/ranks.out
	attend soda msg run -n $ranks --nodes $nodes -- "build/examples/messages/$1" "${@:2}" >"$out" || {
		cat "$out" >&2
		die 1 "$1 failed"
	}
	said=$(sed -n 's/.* \([0-9.]*\) s, \(.*, \)\{0,1\}\([0-9]*\) messages, \([0-9]*\) bytes: as computed by one process$/\1 \3 \4/p' "$out")
	[ -n "$said" ] || { cat "$out" >&2; die 1 "$1: wrong"; }
}

# The run of the median time: app seconds messages bytes messages_per_s
measure_ranks() { # APP [ARGUMENT]...
	local i said all='' seconds messages bytes
	say "$1 on $ranks ranks, $nodes agents"
	for ((i = 0; i < repeat; i++)); do
		run_ranks "$@"
		all+="$said"$'\n'
	done
	read -r seconds messages bytes <<<"$(printf %s "$all" | sort -n | sed -n $(((repeat + 1) / 2))p)"
	rows+=("$1 $seconds $messages $bytes $((messages * 1000000 / ($(micros "$seconds") + 1)))")
}

messages_demo() {
	local row input=(-s "$scale")
	[ -z "$graph" ] || input=("$(realpath "$graph")")
	build
	measure_ranks histogram 1000000
	measure_ranks sssp "${input[@]}"
	printf '\n%-12s %5s %10s %12s %14s %16s %9s\n' app ranks time messages bytes 'messages a s' verified
	for row in "${rows[@]}"; do
		# shellcheck disable=SC2086
		set -- $row
		printf '%-12s %5d %8s s %12d %14d %16d %9s\n' "$1" $ranks "$2" "$3" "$4" "$5" yes
	done
	echo
	echo "time: the median of $repeat.  verified: one process has computed the same, alone."
	[ -z "$json" ] || write_messages_json >"$json" || die 1 "$json: cannot write"
}

write_messages_json() {
	local row separator=''
	printf '{"messages": ['
	for row in "${rows[@]}"; do
		# shellcheck disable=SC2086
		set -- $row
		printf '%s\n {"app": "%s", "ranks": %d, "agents": %d, "seconds": %s, "messages": %s, "bytes": %s, ' \
			"$separator" "$1" $ranks $nodes "$2" "$3" "$4"
		printf '"messages_per_s": %s, "verified": true}' "$5"
		separator=,
	done
	printf '\n]}\n'
}
