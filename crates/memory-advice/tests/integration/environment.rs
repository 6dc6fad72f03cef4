//! The settings that limit a program's memory.

use gpu_core::Bytes;
use gpu_memory_advice::environment::*;

fn advice(limit: u64, mps: Option<usize>, inherited: &[(&str, &str)]) -> Advice {
    let had = |name: &str| {
        let found = inherited.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let bound = Bound {
        limit: Bytes::from_mib(limit),
        context: Bytes::from_mib(500),
        totals: &[Bytes::from_mib(16_000)],
        mps,
        inherited: &had,
    };
    let jax = Used { framework: Framework::Jax, version: None };
    bound.advice(&[jax])
}

const MPS_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

fn set(advice: &Advice, name: &str) -> Option<String> {
    let found = advice.variables.iter().find(|variable| variable.name == name);
    found.map(|variable| variable.value.clone())
}

#[test]
fn frameworks_have_names() {
    assert_eq!(Framework::Torch.name(), "PyTorch");
    assert_eq!(Framework::TensorFlow.name(), "TensorFlow");
    assert_eq!(Framework::Jax.name(), "JAX");
}

#[test]
fn lower_limit_of_mps_is_kept() {
    let limits = |had: &str| set(&advice(4_000, Some(2), &[(MPS_LIMIT, had)]), MPS_LIMIT);
    assert_eq!(limits("").as_deref(), Some("0=4000M,1=4000M"));
    assert_eq!(limits("0=512M").as_deref(), Some("0=512M,1=4000M"));
    assert_eq!(limits(" 0 = 512m , 1 = 1g ").as_deref(), Some("0=512M,1=1024M"));
    assert_eq!(limits("1=16G").as_deref(), Some("0=4000M,1=4000M"));
    for wrong in ["512M", "0=512", "0=M", "0=", "a=1G", "0=99999999999999999999G"] {
        assert_eq!(limits(wrong), None, "{wrong}");
    }
}

#[test]
fn mps_limit_needs_a_plausible_number_of_devices() {
    for (count, is_set) in [(None, false), (Some(0), false), (Some(64), true), (Some(65), false)] {
        assert_eq!(set(&advice(4_000, count, &[]), MPS_LIMIT).is_some(), is_set, "{count:?}");
    }
    let bounding: Vec<&str> = advice(4_000, Some(1), &[]).bounding().collect();
    assert!(bounding.contains(&MPS_LIMIT), "{bounding:?}");
}

#[test]
fn useless_limit_sets_no_variables() {
    for (limit, words) in [(500, "leaves nothing"), (16_000, "the whole device")] {
        let advice = advice(limit, Some(1), &[]);
        assert!(advice.variables.is_empty(), "{advice:?}");
        assert!(advice.notes[0].contains(words), "{advice:?}");
    }
    assert!(!advice(510, None, &[]).variables.is_empty());
    assert!(!advice(15_999, None, &[]).variables.is_empty());
}
