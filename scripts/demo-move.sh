# ./demo --move: a simulation that hands its fields over to an agent, in five ways. Sourced by ./demo, whose functions it uses.
# shellcheck shell=bash disable=SC2154

# A plate of 1024 x 1024, two fields of it: 16 MiB a step.
move_size=1024 move_iterations=200 move_every=10
move_strategies='stream file structs host agent'
declare -A move_lines

move_build() {
	local log=$tmp/build.log
	say "setting up and building (the first time takes a minute)"
	scripts/setup --build || die 1 "set-up failed"
	attend scripts/build build >"$log" 2>&1 || { tail -n 30 "$log" >&2; die 1 "the build failed"; }
	PATH=$PWD/build/src/mem_server:$PWD/build/src/dpu_agent:$PWD/build/examples/simulation:$PATH
}

move_daemons() {
	start_daemon "memory server" soda-mem-server --listen tcp://127.0.0.1:0
	start_daemon "agent" soda-dpu-agent --listen "shm://$tmp/agent.sock" --server "$daemon_address" \
		--move-memory 256M
}

move_field() { # NAME STRATEGY: of the line that heat has printed
	sed -n "s/.*\b$1=\([^ ]*\).*/\1/p" <<<"${move_lines[$2]}"
}

move_run() { # STRATEGY
	local frames='' status=0
	if [ "$1" != none ]; then
		frames --agent "$daemon_address" --image "$tmp/heat.ppm" >"$tmp/frames.$1" 2>&1 &
		frames=$!
	fi
	attend heat --agent "$daemon_address" --as "$1" --size $move_size --iterations $move_iterations \
		--every $move_every >"$tmp/heat.$1" 2>&1 || status=1
	[ $status = 0 ] || { [ -z "$frames" ] || kill "$frames" 2>/dev/null; tail -n 3 "$tmp/heat.$1" >&2; die 1 "heat --as $1 failed"; }
	[ -z "$frames" ] || wait "$frames" || { tail -n 3 "$tmp/frames.$1" >&2; die 1 "frames failed"; }
	move_lines[$1]=$(<"$tmp/heat.$1")
}

move_table() {
	local as line='%-8s  %10s  %12s  %10s  %14s  %s\n'
	local -A what=(
		[none]='nothing is handed over'
		[stream]='placed on the way, as an Arrow IPC stream'
		[file]='placed on the way, as an Arrow IPC file'
		[structs]="placed on the way, as structures of Arrow's C data interface"
		[host]='serialised by the solver, then moved'
		[agent]='moved, then serialised by the agent'
	)
	echo
	# shellcheck disable=SC2059
	printf "$line" strategy "lost, us" "at most, us" "CPU us" "iteration, us" ""
	for as in none $move_strategies; do
		# shellcheck disable=SC2059
		printf "$line" "$as" "$(move_field lost_us "$as")" "$(move_field lost_max_us "$as")" \
			"$(move_field cpu_us "$as")" "$(move_field iteration_us "$as")" "${what[$as]}"
	done
	echo
	echo "lost (median of all): what the solver's thread spends on handing a step of $(mib "$(move_field bytes stream)") over, one in $move_every iterations;"
	echo "CPU: the processor time of that, which does not depend on what else the machine does;"
	echo "iteration: all of the solver's time by its iterations, what runs beside it on this machine included."
}

move_json() {
	local as separator=''
	printf '{"strategies": ['
	for as in none $move_strategies; do
		printf '%s\n {"strategy": "%s", "bytes": %s, "handed": %s, "lost_us": %s, "lost_max_us": %s, "cpu_us": %s, "iteration_us": %s}' \
			"$separator" "$as" "$(move_field bytes "$as")" "$(move_field handed "$as")" \
			"$(move_field lost_us "$as")" "$(move_field lost_max_us "$as")" "$(move_field cpu_us "$as")" "$(move_field iteration_us "$as")"
		separator=,
	done
	printf '\n]}\n'
}

move_demo() {
	local as
	move_build
	move_daemons
	for as in none $move_strategies; do
		say "the solver: $as"
		move_run "$as"
	done
	cat "$tmp/frames.structs"
	move_table
	[ -z "$image" ] || cp "$tmp/heat.ppm" "$image" || die 1 "$image: cannot write"
	[ -z "$json" ] || move_json >"$json" || die 1 "$json: cannot write"
}
