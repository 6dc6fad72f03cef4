use super::*;

const GIB: u64 = 1 << 30;
const NEW: &str = "PYTORCH_ALLOC_CONF";
const OLD: &str = "PYTORCH_CUDA_ALLOC_CONF";
const JAX_OLD: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
const GROWTH: &str = "TF_FORCE_GPU_ALLOW_GROWTH";
const MPS: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

/// Returns the advice for a limit of 6 GiB on these devices, including 512 MiB for the context.
fn on(totals: &[u64], mps: Option<usize>, used: &[Used], inherited: &[(&str, &str)]) -> Advice {
    let find = |name: &str| {
        assert!(READ.contains(&name), "{name} is read");
        inherited.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    let (limit, context) = (Bytes(6 * GIB), Bytes(512 << 20));
    let totals: Vec<Bytes> = totals.iter().map(|gib| Bytes(gib * GIB)).collect();
    Bound { limit, context, totals: &totals, mps, inherited: &find }.advice(used)
}

fn advice(used: &[Used], inherited: &[(&str, &str)]) -> Advice {
    on(&[24], None, used, inherited)
}

fn torch(version: &str) -> Used {
    Used { framework: Framework::Torch, version: Version::parse(version) }
}

const JAX: Used = Used { framework: Framework::Jax, version: None };
const TENSORFLOW: Used = Used { framework: Framework::TensorFlow, version: None };

fn variables(advice: &Advice) -> Vec<(&str, &str)> {
    advice.variables.iter().map(|variable| (variable.name, variable.value.as_str())).collect()
}

fn says(advice: &Advice, words: &str) -> bool {
    advice.notes.iter().any(|note| note.contains(words))
}

#[test]
fn package_versions_are_parsed() {
    let version = |major, minor| Some(Version { major, minor });
    assert_eq!(Version::parse("2.10.0+cu128"), version(2, 10));
    assert_eq!(Version::parse("2.9.0a0+git1234"), version(2, 9));
    assert_eq!(Version::parse("1.13rc1"), version(1, 13));
    assert_eq!(Version::parse("2"), None);
    assert_eq!(Version::parse("nightly.x"), None);
}

#[test]
fn pytorch_fraction_is_set_only_for_supporting_versions() {
    let found = advice(&[torch("2.10.0")], &[]);
    // 5.5 of 24 GiB, rounded down.
    assert_eq!(variables(&found), [(NEW, "per_process_memory_fraction:0.2291")]);
    assert!(found.code.is_empty() && found.bounding().eq([NEW]));
    assert!(says(&found, "cooperative"));

    for version in ["1.8", "2.9.1", "unknown"] {
        let found = advice(&[torch(version)], &[]);
        assert!(found.variables.is_empty(), "it would not start");
        assert!(found.code[0].lines[3].contains("5905580032 / total"));
        assert!(says(&found, "cooperative"));
    }
    let old = advice(&[torch("1.7.1")], &[]);
    assert!(old.code.is_empty() && old.variables.is_empty() && says(&old, "cannot limit memory"));
    let pool = advice(&[torch("2.10")], &[(OLD, "backend:cudaMallocAsync")]);
    assert!(pool.variables.is_empty() && says(&pool, "cudaMallocAsync"));
}

#[test]
fn user_settings_are_extended_but_limit_is_never_raised() {
    let found = advice(&[torch("2.11")], &[(OLD, "expandable_segments:True,")]);
    let value = "expandable_segments:True,per_process_memory_fraction:0.2291";
    assert_eq!(variables(&found), [(NEW, value), (OLD, value)]);

    let smaller = [(NEW, "per_process_memory_fraction: 0.1 ,max_split_size_mb:64")];
    let value = "max_split_size_mb:64,per_process_memory_fraction:0.1";
    assert_eq!(variables(&advice(&[torch("2.11")], &smaller)), [(NEW, value)]);

    let value = "roundup_power2_divisions:[256:1,512:2]";
    let kept = advice(&[torch("2.11")], &[(NEW, value)]);
    assert!(kept.variables[0].value.starts_with(value), "unknown values are kept");

    for wide in ["0.9", "-1", "nan", "x", ""] {
        let had = format!("per_process_memory_fraction:{wide}");
        let found = advice(&[torch("2.11")], &[(NEW, &had)]);
        assert_eq!(variables(&found), [(NEW, "per_process_memory_fraction:0.2291")], "{wide}");
    }
}

/// PyTorch 2.10 reads the older name first, and the newer name only if the older is not set.
#[test]
fn both_pytorch_variables_keep_existing_settings() {
    let found = advice(&[torch("2.10")], &[(NEW, "a:1"), (OLD, "b:2")]);
    let share = "per_process_memory_fraction:0.2291";
    let (new, old) = (format!("a:1,{share}"), format!("b:2,{share}"));
    assert_eq!(variables(&found), [(NEW, new.as_str()), (OLD, old.as_str())]);
    let empty = advice(&[torch("2.10")], &[(OLD, "")]);
    assert_eq!(variables(&empty), [(NEW, share), (OLD, share)], "one that is empty counts too");
}

#[test]
fn jax_fraction_is_set_in_one_variable() {
    assert_eq!(variables(&advice(&[JAX], &[])), [(JAX_OLD, "0.2291")]);
    let new = advice(&[JAX], &[("XLA_CLIENT_MEM_FRACTION", "0.9")]);
    assert_eq!(variables(&new), [("XLA_CLIENT_MEM_FRACTION", "0.2291")]);
    let smaller = advice(&[JAX], &[(JAX_OLD, ".1")]);
    assert_eq!(variables(&smaller), [(JAX_OLD, ".1")]);
    let both = advice(&[JAX], &[(JAX_OLD, "0.5"), ("XLA_CLIENT_MEM_FRACTION", "0.5")]);
    assert!(says(&both, "does not start with both"));
    for (allocator, keeper) in [
        ("platform", Keeper::Nobody),
        ("cuda_async", Keeper::Nobody),
        ("BFC", Keeper::Allocator),
        ("default", Keeper::Allocator),
        ("", Keeper::Allocator),
    ] {
        let found = advice(&[JAX], &[("XLA_PYTHON_CLIENT_ALLOCATOR", allocator)]);
        assert_eq!(found.variables[0].kept_by, keeper, "{allocator}");
        assert_eq!(says(&found, "only bfc enforces"), keeper == Keeper::Nobody, "{allocator}");
    }
}

#[test]
fn jax_preallocation_is_disabled_when_fraction_is_unknown() {
    const PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
    let found = on(&[], None, &[JAX], &[]);
    assert_eq!(variables(&found), [(PREALLOCATE, "false")]);
    assert!(found.bounding().next().is_none() && says(&found, "is unknown"));
    assert!(on(&[], None, &[JAX], &[(PREALLOCATE, "true")]).variables.is_empty());
    assert!(on(&[], None, &[torch("2.10")], &[]).variables.is_empty());
}

#[test]
fn tensorflow_limit_requires_code() {
    let found = advice(&[TENSORFLOW], &[]);
    assert_eq!(variables(&found), [(GROWTH, "true")]);
    assert!(found.bounding().next().is_none());
    assert!(found.code[0].lines[2].contains("memory_limit=5632"));
    for (version, line) in [
        ("1.15.0", "    per_process_gpu_memory_fraction=0.2291"),
        ("2.1.0", "    tf.config.experimental.VirtualDeviceConfiguration(memory_limit=5632)"),
        ("2.17.0", "    tf.config.LogicalDeviceConfiguration(memory_limit=5632)"),
    ] {
        let used = Used { version: Version::parse(version), ..TENSORFLOW };
        let found = advice(&[used], &[]);
        assert!(found.code[0].lines.concat().contains(line.trim()), "{version}");
        let blind = on(&[], None, &[used], &[]);
        assert_eq!(blind.code.is_empty(), version.starts_with('1'), "{version}");
    }
    assert!(advice(&[TENSORFLOW], &[(GROWTH, "true")]).variables.is_empty());
    let no = advice(&[TENSORFLOW], &[(GROWTH, "false")]);
    assert!(no.variables.is_empty() && says(&no, "=false is kept"));
    for word in ["1", "True", "yes"] {
        let other = advice(&[TENSORFLOW], &[(GROWTH, word)]);
        assert_eq!(variables(&other), [(GROWTH, "true")]);
        assert!(says(&other, "neither true nor false"), "{word}");
    }
    let pool = advice(&[TENSORFLOW], &[("TF_GPU_ALLOCATOR", "cuda_malloc_async")]);
    assert!(says(&pool, "applies only to the memory that the pool retains"));
}

#[test]
fn mps_limit_is_set_per_visible_device() {
    let found = on(&[24, 24], Some(2), &[], &[]);
    assert_eq!(variables(&found), [(MPS, "0=6144M,1=6144M")]);
    assert_eq!(found.variables[0].kept_by, Keeper::Server);
    assert!(says(&found, "without any message") && says(&found, "whole list is ignored"));
    assert!(!says(&found, "cooperative"));
    let had = on(&[24, 24], Some(2), &[], &[(MPS, "1=2G, 0=20G,7=1G")]);
    assert_eq!(variables(&had), [(MPS, "0=6144M,1=2048M")]);
    for had in ["GPU-1234=4G", "0=4", "0=G", "0=99999999999G", "0", "0=4é"] {
        let found = on(&[24], Some(1), &[], &[(MPS, had)]);
        assert!(found.variables.is_empty() && says(&found, "left unchanged"), "{had}");
    }
    assert!(on(&[24], Some(0), &[], &[]).variables.is_empty());
    assert!(on(&[24], Some(10_000), &[], &[]).variables.is_empty());
}

#[test]
fn fraction_is_relative_to_largest_device() {
    let found = on(&[16, 80, 16], None, &[JAX], &[]);
    // 5.5 of 80 GiB. The fraction for the smallest, 0.34, would be 27 GiB of the largest.
    assert_eq!(variables(&found), [(JAX_OLD, "0.0687")]);
    assert!(says(&found, "the largest"));
    assert!(!says(&on(&[16, 16], None, &[JAX], &[]), "the largest"));
}

#[test]
fn useless_limits_are_reported() {
    let none = |_: &str| None;
    let bound = |limit, totals| Bound {
        limit: Bytes(limit),
        context: Bytes(GIB),
        totals,
        mps: None,
        inherited: &none,
    };
    let totals = [Bytes(24 * GIB)];
    for limit in [GIB, GIB + 1] {
        assert!(bound(limit, &totals).leaves_nothing());
        assert!(says(&bound(limit, &totals).advice(&[JAX]), "leaves nothing"), "{limit}");
    }
    let whole = bound(24 * GIB, &totals).advice(&[JAX]);
    assert!(whole.variables.is_empty() && says(&whole, "whole device"));
    assert!(says(&bound(6 * GIB, &totals).advice(&[]), "no PyTorch, TensorFlow or JAX found"));
}
