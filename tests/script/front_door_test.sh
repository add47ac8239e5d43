#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
# front_door_test.sh <project>: ./dspp as a user runs it, on machines made of stubs.
set -u
source=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/script/machine.sh
. "$here/machine.sh"

on_a_machine 'a wrong word is answered with the nearest right one, before anything is done'
try tran; refuses '"tran", but it knows "train"'
try docter; refuses '"docter", but it knows "doctor"'
try --clean; refuses '"--clean", but it knows "clean"'
try test --perset tsan; refuses '"--perset", but it knows "--preset"'
try test --preset nosuch; refuses 'knows no preset "nosuch"'
try test --preset tsann; refuses '"tsann", but it knows "tsan"'
try test --preset; refuses '--preset needs a name, but nothing follows it'
try test -L; refuses '-L needs a name, but nothing follows it'
for name in '' ' ' 'zero comm'; do
  try test -L "$name"; refuses "-L needs a name, but got \"$name\""
  try test --preset "$name"; refuses "--preset needs a name, but got \"$name\""
  try bench "$name"; refuses "./dspp bench needs names of benchmarks, but got \"$name\""
done
try bench --json ''; refuses '--json needs a file name, but got ""'
try bench --jsno x; refuses '"--jsno", but it knows "--json"'
try bench --json; refuses '--json needs a file name, but nothing follows it'
try bench --json absent/x.json; refuses 'absent is none'
try doctor --no-instal; refuses '"--no-instal", but it knows "--no-install"'
try clean everything; refuses '"everything", but it knows "--no-install"'
[ ! -e "$root/build" ] || fails 'leaves a build folder'

on_a_machine 'without a command there is the usage, as an error; help is none'
try; exits 2
[ -z "$out" ] || fails 'prints on stdout'
case $err in 'usage: ./dspp <command>'*) ;; *) fails 'has no usage on stderr' ;; esac
try --no-install; exits 2
for word in help --help -h; do
  try "$word"; exits 0; prints 'usage: ./dspp <command>'
  for known in train tokenize test bench doctor clean help --no-install --policy --device --offload --mpi --preset; do prints "$known"; done
done

on_a_machine '--no-install before and after the command installs nothing, and says what is missing'
for missing in 'g++:a C++20 compiler:g++' 'cmake:CMake 3.25:cmake' 'ninja:Ninja:ninja-build' \
  'Eigen/Core:Eigen 3.4:libeigen3-dev' 'CLI/CLI.hpp:CLI11:libcli11-dev'; do
  on_a_machine "$fact"
  without "${missing%%:*}"
  what=${missing#*:}
  for what_to_do in train test bench; do
    try --no-install $what_to_do; refuses "needs ${what%:*}"; installs
    try $what_to_do --no-install; refuses "Install ${what#*:}."; installs
    complains 'but it was not found, and --no-install was given'
  done
done
on_a_machine "$fact"
without doctest/doctest.h benchmark/benchmark.h dnnl.h liburing.h
try test --no-install; refuses 'Install doctest-dev.'
try bench --no-install; refuses 'Install libbenchmark-dev.'
try train --no-install --steps 3; exits 0; installs; called 'train_gpt [--steps] [3]'
never_called '[--no-install]'

on_a_machine 'what is missing is installed, exactly that, without a question'
try train; exits 0; installs; never_called apt-get
without ninja Eigen/Core
try train; exits 0; installs ninja-build libeigen3-dev; never_called '[update]'; prints 'installing ninja-build (Ninja)'
try train; exits 0; installs
without g++ cmake ninja Eigen/Core CLI/CLI.hpp dnnl.h liburing.h doctest/doctest.h benchmark/benchmark.h clang++ libfuzzer
try test -L zero; exits 0; installs g++ cmake ninja-build libeigen3-dev libcli11-dev libdnnl-dev liburing-dev doctest-dev
try test --preset clang; exits 0; installs clang libclang-rt-dev
try test; exits 0; installs libbenchmark-dev
[ -d "$root/build/mpich" ] || fails "does not unpack the headers of MPICH"
try test; exits 0; never_called download
rm -rf "$root/build/mpich"
try test -L zero; exits 0; never_called download
try test --no-install; exits 0; never_called download
rm "$machine/apt/libmpich-dev"
try test -L comm; exits 0; never_called download
without ninja benchmark/benchmark.h
try bench ops/matmul; exits 0; installs ninja-build libbenchmark-dev
rm "$machine/apt_lists"
without ninja Eigen/Core
try train; exits 0; installs ninja-build libeigen3-dev; called '[update]'
reads_package_lists 1
without ninja
: >"$machine/apt_lists_are_old"
try train; exits 0; reads_package_lists 1; called 'train_gpt'; prints 'reading the package lists again'

on_a_machine 'what cannot be installed is said, and what is optional is done without'
rm "$machine/apt/libdnnl-dev" "$machine/apt_lists"
without dnnl.h doctest/doctest.h
try test -L zero; exits 0; reads_package_lists 1; installs libdnnl-dev doctest-dev
try train --steps 3; exits 0; prints 'going on without it'; called 'train_gpt [--steps] [3]'
without ninja
: >"$machine/apt_fails"
try train; exits 2; never_called train_gpt
complains 'E: no network'; complains 'dspp: this command needs Ninja, but ninja-build could not be installed.'
without apt-get
try train; refuses 'there is no apt-get to install it with. Install the equivalent of ninja-build.'

on_a_machine 'sudo is never asked for a password'
echo 1000 >"$machine/uid"
: >"$machine/sudo_is_free"
without ninja
try train; exits 0; installs ninja-build; called 'sudo [-n]'
rm "$machine/sudo_is_free"
without ninja
try train; refuses 'installing needs root, or sudo without a password. Run: sudo apt-get install ninja-build'; installs
without sudo
try train; refuses 'installing needs root, or sudo without a password'; installs
give ninja
without dnnl.h
try train; exits 0; installs

on_a_machine 'a compiler or CMake that is too old is named, and replaced where that helps'
echo 11.4.0 >"$machine/version/g++"
try train --no-install; refuses 'g++ 12 or later), but g++ 11.4.0 was found, and --no-install was given'
try doctor; exits 0; prints 'g++ 11.4.0 is not enough (package g++, 12 or later)'
: >"$machine/apt/g++"
try train; refuses 'g++ 11.4.0 was found, and installing g++ did not change that'; installs g++
for version in 12.1.0 13.2.0 20.0.1; do
  echo $version >"$machine/version/g++"
  try train; exits 0; installs
done
without concepts
try train --no-install; refuses 'g++ 20.0.1 without <concepts> was found'
: >"$machine/headers/concepts"
echo 3.22.1 >"$machine/version/cmake"
try train --no-install; refuses 'CMake 3.25 or later, but CMake 3.22.1 was found'
try train; exits 0; installs cmake

# The doctor's lines; those of the real hardware and of /usr/local/cuda vary.
doctors='C++20 compiler:CMake:Ninja:Eigen:CLI11:doctest:Google Benchmark:clang++:oneDNN:io_uring:ccache:OpenMP:MPI:CUDA device:NCCL'
# doctor_says <yes|no|either> <name>
doctor_says() {
  line=$(printf '%s\n' "$out" | sed -n "s/^  $2  *\(yes\|no\)  */\1 /p")
  case $1:$line in
    yes:yes\ ?* | either:yes\ ?*) ;;
    no:no\ ?*'. It gives: '?*. | either:no\ ?*'. It gives: '?*.) ;;
    *) fails "has for $2: $line" ;;
  esac
}

on_a_machine 'the doctor says of everything whether it was found, why not, and what it would give'
for tool in mpirun nvidia-smi ccache; do give $tool; echo 1 >"$machine/version/$tool"; done
try doctor; exits 0; installs; prints 'this machine can train'
for name in 'C++20 compiler' CMake Ninja Eigen CLI11 doctest 'Google Benchmark' clang++ oneDNN io_uring ccache OpenMP; do
  doctor_says yes "$name"
done
echo 'Operation not permitted' >"$machine/kernel_refuses_rings"
try doctor; exits 0; doctor_says no io_uring; prints 'no    the kernel refuses it: Operation not permitted. It gives: '
without g++ clang++ cmake ninja nproc mpirun nvidia-smi ccache doctest/doctest.h benchmark/benchmark.h Eigen/Core CLI/CLI.hpp dnnl.h liburing.h omp.h
for arguments in 'doctor' '--no-install doctor' 'doctor --no-install'; do
  # shellcheck disable=SC2086 # a list of words
  try $arguments; exits 0; installs; prints 'something required is absent'
  [ -z "$err" ] || fails 'complains on stderr'
  IFS=:
  for name in $doctors; do doctor_says no "$name"; done
  for name in 'CUDA compiler' AVX-512 'AVX-512 bf16' 'AMX bf16'; do doctor_says either "$name"; done
  unset IFS
  prints '  cores '
  prints '  memory '
done

on_a_machine 'bench peers makes an environment of its own, once, and says what is missing'
try bench peers G; refuses 'knows no workload "G"'
try bench zero/step peers; refuses 'needs peers before its workloads'
try bench peers --json absent/x.json A; refuses 'absent is none'
try bench peers --jsno x; refuses '"--jsno", but it knows "--json"'
[ ! -e "$root/build" ] || fails 'leaves a build folder'
try bench peers --json "$work/rows.json" A D; exits 0; installs
called "python3 [-m] [venv] [$root/build/peers]"
called '[install] [--no-cache-dir] [--disable-pip-version-check] [torch] [numpy] [setuptools]'
called '[install] [--no-cache-dir] [--disable-pip-version-check] [deepspeed]'
called '[--target] [peers_zero0_f32]'
called "[--mpirun] [$machine/bin/mpirun] [--json] [$work/rows.json] [A] [D]"
try bench peers; exits 0; never_called '[install]'; called '[A] [A2] [B] [B2] [C] [D] [E] [F]'
without mpirun mpicxx && rm "$machine/apt/openmpi-bin"
try bench peers A; exits 0; called '[--mpirun] [] [A]'
: >"$machine/peers_fail"
try bench peers A; exits 1
on_a_machine "$fact"
without python3 python3-venv python3-dev
try bench peers A; exits 0; installs python3 python3-venv python3-dev
# ends_with <text>: one sentence on stderr, and exit 1.
ends_with() {
  exits 1; complains "dspp: $1"
  [ "$(grep -c '' "$work/err")" -eq "${2:-1}" ] || fails "stderr is not ${2:-1} lines"
  never_called compare.py
}
for missing in python3 python3-venv; do
  on_a_machine "$fact"
  without "$missing" && rm "$machine/apt/$missing"
  try bench peers; ends_with './dspp bench peers needs Python 3.10 or later with venv and pip, but they were not found.'
  without apt-get
  try bench peers; ends_with './dspp bench peers needs Python 3.10 or later with venv and pip, but they were not found.'
done
on_a_machine "$fact"
try bench peers --no-install; ends_with "./dspp bench peers needs PyTorch and DeepSpeed in $root/build/peers"
echo torch numpy setuptools >"$machine/pip_fails"
try bench peers; ends_with 'PyTorch could not be installed from PyPI' 2; complains 'ERROR: no network'
echo deepspeed >"$machine/pip_fails"
try bench peers; exits 0; prints 'DeepSpeed could not be installed from PyPI'; called compare.py
try bench peers; exits 0; never_called '[install]'

on_a_machine 'clean removes build/ and nothing else'
mkdir -p "$root/build/cpu" "$root/runs" "$root/weights"
before=$(find "$root" -path "$root/build" -prune -o -print | sort)
try clean; exits 0; prints "removed $root/build"
[ "$(find "$root" | sort)" = "$before" ] || fails 'leaves something else than before without build/'
for arguments in '--no-install clean' 'clean --no-install' 'clean'; do
  # shellcheck disable=SC2086 # a list of words
  try $arguments; exits 0
done

on_a_machine 'a standard output that takes nothing is one sentence'
for word in help doctor clean train tokenize test bench; do
  env -i PATH="$machine/bin" MACHINE="$machine" TMPDIR="$work" "$root/dspp" $word >/dev/full 2>"$work/err"
  status=$? command="./dspp $word >/dev/full" out='' err=$(cat "$work/err")
  refuses './dspp needs a standard output that takes what it prints'
done

# U+202E, U+009B, ESC, a byte that is not UTF-8, and a letter.
acting=$(printf 'a\342\200\256\302\233\033\377\303\274') shown='a\xe2\x80\xae\xc2\x9b\x1b\xff\xc3\xbc'
on_a_machine 'nothing that is shown acts on a terminal'
try "$acting"; refuses "knows no command \"$shown\""
try 'x
trane'; refuses 'knows no command "x\ntrane", but it knows "train"'
try test -L "$acting"; refuses "knows no label \"$shown\""
try test -L 'a
b	c'; refuses 'got "a\nb\tc"'
mkdir "$work/$acting" && cp -R "$source/dspp" "$source/scripts" "$work/$acting"
env -i PATH="$machine/bin" MACHINE="$machine" TMPDIR="$work" "$work/$acting/dspp" clean >"$work/out" 2>"$work/err"
status=$? command="$shown/dspp clean" out=$(cat "$work/out") err=$(cat "$work/err")
exits 0; prints "removed $work/$shown/build"
echo "$acting" >"$machine/version/g++"
try doctor; exits 0; prints "g++ $shown"

on_a_machine '--policy without a policy is refused, however it is written'
try train --policy; refuses '--policy needs a policy, but none follows it'
try train --steps 3 --policy; refuses '--policy needs a policy, but none follows it'
try train --policy ''; refuses '--policy needs a policy, but none follows it'
try train --policy= --steps 3; refuses '--policy needs a policy, but none follows it'
try train --policy 'Zero<3>' --steps 3; refuses '--policy needs a policy, but got "Zero<3>"'
try train --policy --steps 3; refuses '--policy needs a policy, but "--steps" follows it'
never_called cmake

on_a_machine '--policy takes the members of a policy and nothing else'
# shellcheck disable=SC2016 # what must not be run
for text in 'Policy<Zero<0>>; int x; using X=Policy<Zero<0>>' 'Policy<decltype(0)>' 'Policy<Zero<4>>' 'Policy<Zero<0>, Mine>' \
  'Policy<Zero<-1>>' 'Policy<Zero<1+1>>' 'Policy<Bf16> // >' 'Policy<Gradients<int>>' 'Policy<Zero <2>;>' 'Policy<"x">' \
  'Policy<*>' 'Policy<$(id)>' 'Policy<Bf16
>' '\Policy<>' 'Policy<Bf16;F32>'; do
  try train --policy "$text"; exits 2; never_called cmake
  complains 'dspp: --policy '
done
try train --policy 'Policy<AttentionBy<Flash>>'; refuses 'knows no member "AttentionBy<Flash>", but it knows "AttentionBy<'
try train --policy 'Policy<Zero<2>, Bf61>'; refuses 'knows no member "Bf61", but it knows "Bf16"'
try train --policy 'Policy<Zero<3>, SequenceParalel, Tp<2>>'; refuses 'but it knows "SequenceParallel"'
for degree in 0 -1 x 02 10000 ''; do
  try train --policy "Policy<Tp<$degree>>"; refuses "needs a degree from 1 to 9999 in Tp<...>, but got \"Tp<$degree>\""
done
for text in 'Policy<Bf16,>' 'Policy<,Bf16>' 'Policy<Bf16,,F32>' 'Policy<,>'; do
  try train --policy "$text"; exits 2; never_called cmake
done
for text in 'Policy<>' 'Policy<Zero<0>>' 'Policy<Zero<3>, Gradients<F32>, Bf16, Tp<2>, Cp<12>, SequenceParallel, RegatherInputs, AttentionBy<FlashKernels>, Cpu>'; do
  try train --policy "$text"; exits 0; called "[-DDSPP_TRAIN_POLICY=$text]"
done
try train --policy ' Policy< Zero<3> ,Bf16 > '; exits 0; called '[-DDSPP_TRAIN_POLICY=Policy<Zero<3>, Bf16>]'

on_a_machine '--offload gives the policy its member, and is refused where there is no such place'
try train --offload optimizer:disk --steps 3; exits 0
called '[-DDSPP_TRAIN_POLICY=Policy<Zero<2>, FastPrecision, Offload<Optimizer,Disk>>]'; called 'train_gpt [--steps] [3]'
try train --offload=optimizer:host --policy 'Policy<Zero<3>, Bf16>'; exits 0
called '[-DDSPP_TRAIN_POLICY=Policy<Zero<3>, Bf16, Offload<Optimizer,Host>>]'
try train --policy 'Policy<Offload< Optimizer , Disk >, Bf16>'; exits 0
called '[-DDSPP_TRAIN_POLICY=Policy<Offload<Optimizer,Disk>, Bf16>]'
try train --policy 'Policy<Bf16, Offload<Optimizer, Tape>>'; refuses 'knows no member "Offload<Optimizer,Tape>", but it knows "Offload<Optimizer,'
try train --policy 'Policy<Bf16, Offload<Optimizer>>'; refuses 'knows no member "Offload<Optimizer>"'
try train --offload optimizer:disk,parameters:disk --policy 'Policy<Zero<3>, Offload<Activations, Host>>'; exits 0
called '[-DDSPP_TRAIN_POLICY=Policy<Zero<3>, Offload<Activations,Host>, Offload<Optimizer,Disk>, Offload<Parameters,Disk>>]'
try train --offload activations:host,optimizer:host --policy 'Policy<>'; exits 0
called '[-DDSPP_TRAIN_POLICY=Policy<Offload<Activations,Host>, Offload<Optimizer,Host>>]'
try train --offload activations:disk --policy 'Policy<>'; exits 0; called '[-DDSPP_TRAIN_POLICY=Policy<Offload<Activations,Disk>>]'
try train --offload parameters:host --policy 'Policy<Zero<2>, Bf16>'; refuses '--offload parameters:host needs a policy with Zero<3>'; never_called cmake
try train --offload parameters:disk --policy 'Policy<Zero<3>, Bf16>'; refuses '--offload parameters:disk needs optimizer:disk beside'; never_called cmake
for text in optimizer:tape parameters '' optimizer:host, ,optimizer:host activations:tape 'optimizer:host parameters:host'; do
  try train --offload "$text"; refuses "or several with commas between them, but got \"$text\""; never_called cmake
done
try train --steps 3 --offload; refuses 'or several with commas between them, but got ""'
try train --offload optimizer:disk,optimizer:host; refuses '--offload needs each of optimizer, parameters and activations once'
for what in 'optimizer:disk Offload<Optimizer,Host>' 'parameters:host Offload<Parameters,Disk>' 'activations:host Offload<Activations,Host>'; do
  try train --offload "${what%% *}" --policy "Policy<Zero<3>, ${what#* }>"
  refuses "--offload ${what%% *} needs a policy that does not offload the same"
done
sed 's/^using TrainPolicy = .*/using TrainPolicy = Policy<Zero<3>, Tp<2>>;/' "$source/examples/train_gpt.cpp" >"$root/examples/train_gpt.cpp"
try train --offload optimizer:disk; exits 0; called '[-DDSPP_TRAIN_POLICY=Policy<Zero<3>, Tp<2>, Offload<Optimizer,Disk>>]'
: >"$root/examples/train_gpt.cpp"
try train --offload optimizer:disk; refuses '--offload optimizer:disk needs the policy that it is added to'
cp "$source/examples/train_gpt.cpp" "$root/examples/train_gpt.cpp"
try train --offload optimizer:disk --device cuda; refuses '--device cuda needs an NVIDIA GPU'

on_a_machine '--device cuda builds for a GPU, and is refused in a sentence where there is none'
try train --device cuda; refuses '--device cuda needs an NVIDIA GPU and its driver, but nvidia-smi lists none'
try train --policy 'Policy<Zero<3>, Cuda>'; refuses '--device cuda needs an NVIDIA GPU'
try train --device tpu; refuses '--device needs cpu or cuda, but got "tpu"'
try train --steps 3 --device; refuses '--device needs cpu or cuda, but got ""'
try train --device cpu --policy 'Policy<Cuda>'; refuses '--device cpu needs a policy for Cpu, but Policy<Cuda> is for Cuda'
try train --device=cuda --policy 'Policy<Bf16, Cpu>'; refuses '--device cuda needs a policy for Cuda, but Policy<Bf16, Cpu> is for Cpu'
never_called cmake
try train --device cpu --steps 3; exits 0; called '[-DDSPP_TRAIN_POLICY=]'; called 'train_gpt [--steps] [3]'
give nvidia-smi; echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)' >"$machine/version/nvidia-smi"
[ -x /usr/local/cuda/bin/nvcc ] || { try train --device cuda; refuses '--device cuda needs nvcc'; never_called cmake; }
give nvcc
try train --device cuda --offload optimizer:host; exits 0
called '[-DDSPP_TRAIN_POLICY=Policy<Zero<2>, Bf16, Cuda, Offload<Optimizer,Host>>]'
try train --device cuda --steps 3; exits 0; called '[-DDSPP_TRAIN_POLICY=Policy<Zero<2>, Bf16, Cuda>]'
called '[-DDSPP_CUDA=ON]'; called 'train_gpt [--steps] [3]'
try train --policy 'Policy<Zero<3>>' --device=cuda; exits 0; called '[-DDSPP_TRAIN_POLICY=Policy<Zero<3>, Cuda>]'
try train --policy 'Policy<F16, Cuda>'; exits 0; called '[-DDSPP_TRAIN_POLICY=Policy<F16, Cuda>]'; called '[-DDSPP_CUDA=ON]'

on_a_machine 'the front door is found through links, and from anywhere'
ln -s "$root/dspp" "$work/first"
ln -s first "$work/second"
for door in "$work/first" "$work/second"; do
  : >"$calls"
  (cd / && env -i PATH="$machine/bin" MACHINE="$machine" TMPDIR="$work" "$door" train --steps 3) >"$work/out" 2>"$work/err"
  status=$? command=$door out=$(cat "$work/out") err=$(cat "$work/err")
  exits 0; called "[-B] [$root/build/cpu]"; called 'train_gpt [--steps] [3]'
done

on_a_machine 'without a PATH the tools are found where systems have them'
: >"$calls"
env -i "$(real sh)" "$root/dspp" help >"$work/out" 2>"$work/err"
status=$? command='./dspp help' out=$(cat "$work/out") err=$(cat "$work/err")
exits 0; prints 'usage: ./dspp <command>'

on_a_machine 'without a HOME the tools get one, and a HOME is kept'
try train; exits 0
[ -n "$(cat "$machine/home")" ] || fails 'gives no HOME'
env -i HOME=/else/where PATH="$machine/bin" MACHINE="$machine" TMPDIR="$work" "$root/dspp" train >"$work/out" 2>"$work/err"
status=$? command='HOME=/else/where ./dspp train' out=$(cat "$work/out") err=$(cat "$work/err")
exits 0
[ "$(cat "$machine/home")" = /else/where ] || fails 'changes HOME'

on_a_machine 'a build folder that cannot be written is one sentence'
: >"$root/build"
for words in train tokenize test bench; do
  try $words; refuses "needs to write the folder $root/build/cpu, but it cannot."
done

on_a_machine 'a label is no pattern'
for label in '*' '?' '[a-z]*' 'zero*' '..'; do
  try test -L "$label"; refuses "knows no label \"$label\", but it knows"; never_called '[--build]'
done

# A separate path; $root stays what on_a_machine makes.
on_a_machine 'a checkout whose path CMake cannot take is one sentence, and any other works'
for name in 'semi;colon' 'quote"' 'back\slash' 'open[' 'close]' 'line
break' 'line break at the end
' "\${x}" "\$<x>" 'greater>' 'pipe|' 'hash#' 'less<'; do
  mkdir "$work/$name" && cp -R "$source/dspp" "$source/scripts" "$work/$name"
  : >"$calls"
  env -i PATH="$machine/bin" MACHINE="$machine" TMPDIR="$work" "$work/$name/dspp" train >"$work/out" 2>"$work/err"
  status=$? command="$name/dspp train" out=$(cat "$work/out") err=$(cat "$work/err")
  refuses 'Move the checkout.'; never_called cmake
done
for name in 'two words' 'quote'"'"'s' 'tilde~' 'plus+' 'a&b' '(a)' 'com,ma'; do
  mkdir "$work/$name" && cp -R "$source/dspp" "$source/scripts" "$work/$name"
  : >"$calls"
  env -i PATH="$machine/bin" MACHINE="$machine" TMPDIR="$work" "$work/$name/dspp" train --steps 3 >"$work/out" 2>"$work/err"
  status=$? command="$name/dspp train" out=$(cat "$work/out") err=$(cat "$work/err")
  exits 0; called "[-B] [$work/$name/build/cpu]"; called 'train_gpt [--steps] [3]'
done

on_a_machine 'train hands its options on, and a policy gets a folder of its own'
try train --steps 3 --prompt 'two words'; exits 0
called "[-B] [$root/build/cpu] [--preset] [cpu] [-DDSPP_TRAIN_POLICY=]"
called "cmake [--build] [$root/build/cpu] [--parallel]"
called '[--target] [train_gpt]'
called 'train_gpt [--steps] [3] [--prompt] [two words]'
try train --policy 'Policy<Zero<3>>' --steps 3; exits 0
folder=$(sed -n 's/^cmake \[-S\].* \[-B\] \[\([^]]*\)\].*/\1/p' "$calls")
case $folder in "$root/build/policy-"[0-9]*) ;; *) fails "builds in $folder" ;; esac
called "[-B] [$folder] [--preset] [cpu] [-DDSPP_TRAIN_POLICY=Policy<Zero<3>>]"
called "cmake [--build] [$folder]"
called 'train_gpt [--steps] [3]'
[ -e "$folder/examples/train_gpt" ] || fails 'has no program in its folder'
try train --steps 3 '--policy=Policy<Zero<3>>'; exits 0; called "[-B] [$folder]"; called 'train_gpt [--steps] [3]'
try train --policy 'Policy<Zero<3>, Bf16>'; exits 0; never_called "[-B] [$folder]"
called '[-DDSPP_TRAIN_POLICY=Policy<Zero<3>, Bf16>]'

on_a_machine 'tokenize hands its options on'
try tokenize --input 'two words' --output tokens; exits 0
called "[-B] [$root/build/cpu] [--preset] [cpu]"
called '[--target] [tokenize]'
called 'tokenize [--input] [two words] [--output] [tokens]'
never_called train_gpt
without ninja
for arguments in 'tokenize --no-install --end x' '--no-install tokenize --end x'; do
  # shellcheck disable=SC2086 # a list of words
  try $arguments; refuses 'Install ninja-build.'; installs
done
try tokenize --end x; exits 0; installs ninja-build; called 'tokenize [--end] [x]'; never_called '[--no-install]'
echo 'a.cpp:3:1: error: no member named x' >"$machine/build_says"
try tokenize --end x; exits 1; never_called 'tokenize [--end]'; complains 'no member named x'

on_a_machine 'the help of a program needs no build'
without ninja cmake g++ Eigen/Core
for asked in --help -h '--steps --help' '--nonsense 3 -h --steps 2'; do
  # shellcheck disable=SC2086 # lists of words
  for what_to_do in train 'train --policy Policy<Bf16>' 'train --mpi 2' '--no-install train'; do
    try $what_to_do $asked; exits 0; installs; never_called cmake; never_called mpirun
    [ "$out" = "$(cat "$root/examples/help/train_gpt.txt")" ] || fails 'prints another help'
  done
  # shellcheck disable=SC2086 # a list of words
  try tokenize $asked; exits 0; installs; never_called cmake
  [ "$out" = "$(cat "$root/examples/help/tokenize.txt")" ] || fails 'prints another help'
done
[ ! -e "$root/build" ] || fails 'leaves a build folder'
try train --policy 'Policy<Zero<4>>' --help; refuses 'a stage from 0 to 3'
env -i PATH="$machine/bin" MACHINE="$machine" TMPDIR="$work" "$root/dspp" train --help >/dev/full 2>"$work/err"
status=$? command='./dspp train --help >/dev/full' out='' err=$(cat "$work/err")
refuses './dspp needs a standard output that takes what it prints'
give ninja; give cmake; give g++; : >"$machine/headers/Eigen/Core"
try train --helpful; exits 0; called 'train_gpt [--helpful]'
rm "$root/examples/help/"*
try train --help; exits 0; called 'train_gpt [--help]'
try tokenize -h; exits 0; called 'tokenize [-h]'

on_a_machine 'train --mpi N starts N processes, and installs what that needs'
without mpicxx mpirun
try train --steps 3; exits 0; installs; never_called mpirun
try train --steps 3 --mpi 3 --seed 1; exits 0; installs libopenmpi-dev openmpi-bin
called "mpirun [-n] [3] [$root/build/cpu/examples/train_gpt] [--steps] [3] [--seed] [1]"
called 'OMPI_ALLOW_RUN_AS_ROOT=1'
try train --mpi=2 --policy 'Policy<Zero<3>>'; exits 0; installs; called 'mpirun [-n] [2]'
for number in '' two 0 -1 2x 99999; do
  try train --mpi "$number"; refuses "--mpi needs a number of processes from 1 to 9999, but got \"$number\""
done
try train --mpi; refuses '--mpi needs a number of processes'
without mpirun
try train --mpi 2 --no-install; refuses 'Install openmpi-bin.'; installs
try test -L zero; exits 0; installs
try test -L comm; exits 0; installs openmpi-bin
without mpicxx mpirun
rm "$machine/apt/openmpi-bin"
try test; exits 0; installs libopenmpi-dev openmpi-bin; prints 'openmpi-bin is not to be had'

on_a_machine 'the first signal reaches the processes of mpirun as one that it hands on, the second ends mpirun'
echo 1 >"$machine/signals"
try train --mpi 2; exits 0; called 'mpirun got USR1'; never_called 'mpirun got TERM'
echo 2 >"$machine/signals"
try train --mpi 2; exits 130; called 'mpirun got USR1'; called 'mpirun got TERM'
: >"$machine/mpirun_is_young"
echo 1 >"$machine/signals"
try train --mpi 2; exits 130

on_a_machine 'processes end as they do where the guard of mpirun could not start, and nothing is left behind'
rm "$machine/bin/setsid"
# shellcheck disable=SC2016 # for the other shell
printf '#!/bin/sh\n[ "$1" = mpirun ] || exit 1\nexec "$@"\n' >"$machine/bin/setsid"
chmod +x "$machine/bin/setsid"
try train --mpi 2; exits 0; called 'mpirun [-n] [2]'
echo 2 >"$machine/signals"
try train --mpi 2; exits 130; called 'mpirun got USR1'; called 'mpirun got TERM'
for left in "$work"/tmp.*; do [ ! -e "$left" ] || fails "leaves $left"; done

on_a_machine 'a build that fails is told with the sentence of the compiler, and nothing is run'
sentence='dspp: Zero<Stage> needs a stage from 0 to 3, but this one is not.'
printf '%s\n' "a.hpp:3:1: error: static assertion failed: $sentence" \
  'a.hpp:4:1: error: no member named x' >"$machine/build_says"
try train; exits 1; never_called 'train_gpt ['
complains "$sentence"; complains "The whole log is $root/build/cpu/build.log."
case $err in *'no member'* | *'static assertion'*) fails 'shows what follows from the first error' ;; esac
try train --policy 'Policy<Pp<2>>'; exits 2
complains 'dspp: Policy<Pp<2>> is not a policy that train_gpt can be built with'
echo 'a.cpp:3:1: error: no member named x' >"$machine/build_says"
try train; exits 1
complains 'a.cpp:3:1: error: no member named x'
try test -L zero; exits 1; called 'ctest ['
complains 'dspp: not everything could be built'
echo 'CMake Error at CMakeLists.txt:9: no Eigen' >"$machine/configure_says"
try train; exits 1; never_called '[--build]'
complains 'no Eigen'; complains 'dspp: the build could not be configured.'

on_a_machine 'test builds and runs what its labels need, and ends as the tests do'
try test -L nosuch; refuses 'knows no label "nosuch", but it knows "comm". The labels: comm, script, zero.'
never_called '[--build]'
try test -L zer0; refuses 'knows no label "zer0", but it knows "zero"'
try test -L zero --label script; exits 0
called '[--target] [label_zero] [label_script]'
called 'ctest [--output-on-failure] [--parallel] [3] [--no-tests=error] [--label-regex] [^(zero|script)$]'
try test --preset tsan; exits 0; called "[-B] [$root/build/tsan] [--preset] [tsan]"; called '[--target] [all]'
never_called '[--label-regex]'
: >"$machine/ctest_fails"
try test -L zero; exits 1

on_a_machine 'bench runs what is named, and joins the figures'
try bench ops/matmull; refuses 'knows no benchmark "ops/matmull", but it knows "ops/matmul". The benchmarks: ops/matmul, zero/step.'
try bench ops/matmul --json "$work/figures.json"; exits 0; called '[--target] [bench_ops_matmul]'
[ "$(tr -d '\n' <"$work/figures.json")" = '{"ops/matmul":{"figure": 1}}' ] || fails 'writes other figures'
try bench; exits 1; called '[--target] [bench_ops_matmul] [bench_zero_step]'
complains 'dspp: these benchmarks failed: zero/step.'
echo 'a.cpp:3:1: error: no member named x' >"$machine/build_says"
try bench ops/matmul; exits 1; never_called 'bench_ops_matmul [--benchmark'

[ "$failures" -eq 0 ] || { echo "dspp: $failures expectations about ./dspp failed."; exit 1; }
