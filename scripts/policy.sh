# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# --policy: accepts a policy's members alone, since the text is compiled. Sourced by ./dspp.

members='Zero<0> Zero<1> Zero<2> Zero<3> F64 F32 Bf16 F16 Gradients<F64> Gradients<F32> Gradients<Bf16> Gradients<F16>
  Gradients<ByUse> Shards<Within<Node>> SecondaryShards<Node> GatherAs<Int8> GatherAs<Int4> ReduceAs<Int8> ReduceAs<Int4>
  ReduceAs<Int8,LoCo> ReduceAs<Int4,LoCo>
  SequenceParallel NoSequenceParallel RegatherInputs KeepInputs AttentionBy<Fastest>
  AttentionBy<CuDnn> AttentionBy<FlashKernels> AttentionBy<PlainKernels> Offload<Optimizer,Host> Offload<Optimizer,Disk>
  Offload<Parameters,Host> Offload<Parameters,Disk> Offload<Activations,Host> Offload<Activations,Disk>
  PartitionActivations Overlap<Off> SelectiveRecompute<Norms> SelectiveRecompute<ActivationFunctions> Delayed<1>
  Speculative ZenFlow Cpu Cuda'

# take_policy <text>: sets policy to its canonical spelling, "Policy<A, B>".
take_policy() {
  example="For example --policy \"Policy<Zero<3>, Bf16>\"."
  case $1 in
    '') refuse "--policy needs a policy, but none follows it. $example" ;;
    -*) refuse "--policy needs a policy, but \"$1\" follows it. $example" ;;
  esac
  text=$(printf '%s' "$1" | sed 's/[ \t]*\([<>,]\)[ \t]*/\1/g; s/^[ \t]*//; s/[ \t]*$//')
  case $text in
    Policy\<*\>) ;;
    *) refuse "--policy needs a policy, but got \"$1\". Write Policy<...> around its members, for example --policy \"Policy<Zero<3>, Bf16>\"." ;;
  esac
  rest=${text#Policy<} policy=
  rest=${rest%>}
  while [ -n "$rest" ]; do
    member=${rest%%,*}
    case $member in
      *\>) ;;
      Offload\<* | ReduceAs\<*) case $rest in *,*) member=$member,$(printf '%s' "${rest#*,}" | cut -d , -f 1) rest=${rest#*,} ;; esac ;;
    esac
    case $rest in
      *,) refuse "--policy needs a member after each comma, but \"$1\" ends with one. $example" ;;
      *,*) rest=${rest#*,} ;;
      *) rest= ;;
    esac
    take_member "$member"
    policy="$policy${policy:+, }$member"
  done
  policy="Policy<$policy>"
}

# take_offload <text>: sets offload to the policy's members for --offload what:where,what:where.
take_offload() {
  offload='' rest=$1,
  while [ -n "$rest" ]; do
    case ${rest%%,*} in
      optimizer:host) member='Offload<Optimizer,Host>' ;;
      optimizer:disk) member='Offload<Optimizer,Disk>' ;;
      parameters:host) member='Offload<Parameters,Host>' ;;
      parameters:disk) member='Offload<Parameters,Disk>' ;;
      activations:host) member='Offload<Activations,Host>' ;;
      activations:disk) member='Offload<Activations,Disk>' ;;
      *) refuse "--offload needs optimizer:host, optimizer:disk, parameters:host, parameters:disk, activations:host or activations:disk, or several with commas between them, but got \"$1\". Write --offload optimizer:disk." ;;
    esac
    case $offload in *"${member%,*},"*) refuse "--offload needs each of optimizer, parameters and activations once, but got \"$1\". Keep one of them." ;; esac
    offload="$offload${offload:+, }$member"
    rest=${rest#*,}
  done
}

# offload_by_policy <what:where>: gives the members to the policy, or to the one in examples/train_gpt.cpp.
offload_by_policy() {
  [ -n "$policy" ] || policy=$(sed -n 's/^using TrainPolicy = \(Policy<.*>\);$/\1/p' "$root/examples/train_gpt.cpp")
  case $policy in
    '') refuse "--offload $1 needs the policy that it is added to, but examples/train_gpt.cpp has none on one line. Give it by --policy." ;;
    'Policy<>') policy="Policy<$offload>" ;;
    *)
      for what in Optimizer Parameters Activations; do
        case $offload+$policy in
          *"Offload<$what,"*+*"Offload<$what,"*) refuse "--offload $1 needs a policy that does not offload the same itself, but $policy does. Leave one of them out." ;;
        esac
      done
      policy="${policy%>}, $offload>"
      ;;
  esac
  case $policy in *'Zero<3>'*) ;; *'Offload<Parameters,'*) refuse "--offload $1 needs a policy with Zero<3>, whose parameters are gathered to be used, but $policy has another stage. Add --policy \"Policy<Zero<3>, Bf16>\"." ;; esac
  case $policy in *'Offload<Optimizer,Disk>'*) ;; *'Offload<Parameters,Disk>'*) refuse "--offload $1 needs optimizer:disk beside parameters:disk. Add it." ;; esac
}

# take_member <text>: refuses text that is not a member of a policy.
take_member() {
  for known in $members; do [ "$1" != "$known" ] || return 0; done
  case $1 in
    [TPCE]p\<*\>)
      degree=${1#?p<}
      degree=${degree%>}
      case $degree in '' | 0* | *[!0-9]* | ?????*) ;; *) return 0 ;; esac
      refuse "--policy needs a degree from 1 to 9999 in ${1%%<*}<...>, but got \"$1\". Write ${1%%<*}<2>."
      ;;
    Zero\<*\>) refuse "--policy needs a stage from 0 to 3 in Zero<...>, but got \"$1\". Write Zero<2>." ;;
  esac
  # shellcheck disable=SC2086 # a list of words
  refuse "--policy knows no member \"$1\", but it knows \"$(nearest "$1" $members 'Tp<2>' 'Pp<2>' 'Cp<2>' 'Ep<2>')\". The members are in include/dspp/placement/policy.hpp."
}
