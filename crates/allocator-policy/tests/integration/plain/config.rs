//! Policies by name, and what every policy counts.

use gpu_allocator_policy::bfc::{self, Bfc};
use gpu_allocator_policy::{Failure, ModelMemory, Policy, PolicyConfig, Stream, Usage};
use gpu_core::{Bytes, DeviceMemory, ErrorKind, Region};

const MIB: u64 = 1 << 20;

fn built(name: &str, mib: u64) -> Box<dyn Policy> {
    PolicyConfig::named(name).unwrap().build(ModelMemory::new(Bytes::from_mib(mib))).unwrap()
}

#[test]
fn builds_policy_for_each_name() {
    for (name, title, policy, takes_all, sees_only_grants) in [
        ("caching", "caching", "caching", false, true),
        ("expandable", "caching, expandable", "caching", false, true),
        ("bfc", "TensorFlow (BFC)", "bfc", false, false),
        ("bfc-all-at-once", "TensorFlow (BFC), all at once", "bfc", true, false),
        ("stream-ordered", "cudaMallocAsync", "stream-ordered", false, true),
        ("direct", "cudaMalloc", "direct", false, true),
    ] {
        assert!(PolicyConfig::names().any(|known| known == name));
        let choice = PolicyConfig::named(name).unwrap();
        assert_eq!(choice.title(), title);
        assert_eq!((choice.takes_all(), choice.sees_only_grants()), (takes_all, sees_only_grants));
        assert_eq!(built(name, 64).name(), policy, "{name}");
    }
    let unknown = PolicyConfig::named("cachign").unwrap_err().to_string();
    assert_eq!(unknown, "unknown policy 'cachign': did you mean 'caching'?");
    let message = PolicyConfig::named("x").unwrap_err().to_string();
    assert!(message.contains("available: caching, expandable, bfc"), "{message}");
}

#[test]
fn accepts_only_settings_of_the_policy() {
    let set = |name: &str, key: &str, value: &str| {
        let mut choice = PolicyConfig::named(name).unwrap();
        choice.set(key, value).map(|()| choice).map_err(|error| error.to_string())
    };
    let PolicyConfig::StreamOrdered(pool) =
        set("stream-ordered", "release_threshold", "4096").unwrap()
    else {
        panic!("it stays a pool")
    };
    assert_eq!(pool.release_threshold, Bytes(4096));
    assert!(set("stream-ordered", "release_threshold", "much").is_err());
    assert!(set("stream-ordered", "largest", "4096").is_err());
    let expandable = set("caching", "expandable_segments", "True").unwrap();
    assert_eq!(expandable, PolicyConfig::named("expandable").unwrap());
    let nothing = "set 'limit': the direct policy has no settings";
    assert_eq!(set("direct", "limit", "1").unwrap_err(), nothing);
}

#[test]
fn limit_bounds_every_limited_policy() {
    let largest = |choice: &PolicyConfig| {
        let mut policy = choice.build(ModelMemory::new(Bytes::from_mib(1024))).unwrap();
        let fits = |policy: &mut Box<dyn Policy>, mib| {
            let taken = policy.allocate(Bytes::from_mib(mib), Stream(0));
            taken.and_then(|taken| policy.free(taken)).is_ok()
        };
        (fits(&mut policy, 60), fits(&mut policy, 500))
    };
    for name in PolicyConfig::names() {
        let choice = PolicyConfig::named(name).unwrap();
        let limited = choice.limited(Bytes::from_mib(64));
        assert_eq!(largest(&choice), (true, true), "{name}");
        assert_eq!(largest(&limited), (true, name == "direct"), "{name}");
        let sees = choice.sees_only_grants() && name == "direct";
        assert_eq!(limited.sees_only_grants(), sees, "{name}");
    }
    let PolicyConfig::Bfc(own) =
        PolicyConfig::named("bfc").unwrap().limited(Bytes(100)).on(Bytes(70))
    else {
        panic!("it stays BFC")
    };
    assert_eq!(own.limit, Some(Bytes(70)), "the device is smaller");
    let PolicyConfig::Bfc(own) = PolicyConfig::named("bfc").unwrap().on(Bytes(70)) else {
        panic!("it stays BFC")
    };
    assert_eq!(own.limit, Some(Bytes(70)));
}

#[test]
fn drop_returns_all_memory_to_modelled_device() {
    for name in PolicyConfig::names() {
        let choice = PolicyConfig::named(name).unwrap();
        let (memory, mut policy) = choice.model(Bytes::from_mib(256)).unwrap();
        let taken = policy.allocate(Bytes(30 * MIB), Stream(0)).unwrap();
        assert!(memory.used() >= Bytes(30 * MIB), "{name}");
        policy.free(taken).unwrap();
        drop(policy);
        assert_eq!(memory.used(), Bytes(0), "{name}");
        // Its addresses are free too.
        assert!(memory.reserve(Bytes(256 * MIB)).is_ok(), "{name}");
    }
}

#[test]
fn boxed_policy_behaves_like_the_policy() {
    let mut policy = built("direct", 64);
    let (kept, freed, retired) = (
        policy.allocate(Bytes(2 * MIB), Stream(0)).unwrap(),
        policy.allocate(Bytes(4 * MIB), Stream(0)).unwrap(),
        policy.allocate(Bytes(8 * MIB), Stream(0)).unwrap(),
    );
    policy.free(freed).unwrap();
    let retired = policy.retire(retired).unwrap();
    assert_eq!((policy.in_use(), policy.reserved()), (Bytes(2 * MIB), Bytes(10 * MIB)));
    policy.complete(retired).unwrap();
    let usage = policy.usage();
    assert_eq!((usage.in_use, usage.reserved), (Bytes(2 * MIB), Bytes(2 * MIB)));
    assert_eq!((usage.peak_in_use, usage.peak_reserved), (Bytes(14 * MIB), Bytes(14 * MIB)));
    assert_eq!((usage.device_allocations, usage.device_frees, usage.segments), (3, 2, 1));
    policy.reset_peaks();
    let usage = policy.usage();
    assert_eq!((usage.peak_in_use, usage.peak_reserved), (Bytes(2 * MIB), Bytes(2 * MIB)));
    let segments = policy.segments();
    assert_eq!((segments.len(), segments[0].address), (1, kept.address()));
    assert!(policy.summary().starts_with("direct: 1 allocations in 1 regions\n"));
    assert_eq!(policy.empty_cache().unwrap(), Bytes(0));
    policy.free(kept).unwrap();

    let mut caching = built("caching", 64);
    let taken = caching.allocate(Bytes(30 * MIB), Stream(0)).unwrap();
    caching.free(taken).unwrap();
    assert_eq!(caching.empty_cache().unwrap(), Bytes(30 * MIB));
}

#[test]
fn private_pool_of_boxed_policy_serves_later_requests() {
    let mut policy = built("caching", 64);
    policy.draw_from((1, 0));
    let private = policy.allocate(Bytes(4 * MIB), Stream(0)).unwrap();
    let address = private.address();
    policy.free(private).unwrap();
    policy.draw_from((0, 0));
    let common = policy.allocate(Bytes(4 * MIB), Stream(0)).unwrap();
    assert_ne!(common.address(), address);
    policy.free(common).unwrap();
}

#[test]
fn fragmentation_is_cached_memory_outside_its_largest_block() {
    let of = |reserved, in_use, largest_free| Usage {
        reserved: Bytes(reserved),
        in_use: Bytes(in_use),
        largest_free: Bytes(largest_free),
        ..Usage::default()
    };
    for (usage, expected) in [
        (of(100, 100, 0), 0.0),
        (of(100, 20, 80), 0.0),
        (of(100, 20, 60), 0.25),
        (of(100, 20, 0), 1.0),
    ] {
        assert_eq!(usage.fragmentation(), expected, "{usage:?}");
    }
}

#[test]
fn model_maps_only_whole_pages_of_a_range() {
    let memory = ModelMemory::new(Bytes::from_mib(64));
    let page = memory.page().unwrap().0;
    let range = memory.reserve_addresses(Bytes(4 * page)).unwrap();
    let at = |offset: u64, size: u64| Region { address: range.address + offset, size: Bytes(size) };
    for part in [at(0, 0), at(0, page / 2), at(page / 2, page), at(3 * page, 2 * page)] {
        assert_eq!(memory.map(part).unwrap_err().kind(), ErrorKind::Invalid, "{part:?}");
    }
    memory.map(at(page, 2 * page)).unwrap();
    assert_eq!(memory.used(), Bytes(2 * page));
    for part in [at(page, page / 2), at(0, page), at(2 * page, 2 * page)] {
        assert_eq!(memory.unmap(part).unwrap_err().kind(), ErrorKind::Invalid, "{part:?}");
    }
    assert_eq!(memory.map(at(2 * page, page)).unwrap_err().kind(), ErrorKind::Invalid);
    memory.unmap(at(2 * page, page)).unwrap();
    assert_eq!(memory.used(), Bytes(page));
    memory.release_addresses(range).unwrap();
    assert_eq!(memory.used(), Bytes(0));
    assert!(memory.release_addresses(range).is_err());
}

#[test]
fn bfc_keeps_settings_and_respects_limit() {
    let settings = bfc::Settings {
        limit: Some(Bytes(8 * MIB)),
        allow_growth: true,
        garbage_collection: false,
        ..bfc::Settings::default()
    };
    let mut bfc = Bfc::new(ModelMemory::new(Bytes::from_mib(64)), settings).unwrap();
    assert_eq!((bfc.settings(), bfc.limit()), (&settings, Bytes(8 * MIB)));
    let refused = bfc.allocate(Bytes(8 * MIB + 1), Stream(0));
    assert!(matches!(refused, Err(Failure::OutOfMemory(_))));
    let all = bfc.allocate(Bytes(8 * MIB), Stream(0)).unwrap();
    assert_eq!(bfc.reserved(), Bytes(8 * MIB));
    bfc.free(all).unwrap();
}

#[test]
fn bfc_creates_no_empty_chunk() {
    // A fraction of less than a byte: every remainder is split off.
    let settings = bfc::Settings {
        limit: Some(Bytes(8 * MIB)),
        fragmentation_fraction: 1e-12,
        allow_growth: false,
        ..bfc::Settings::default()
    };
    let mut bfc = Bfc::new(ModelMemory::new(Bytes::from_mib(64)), settings).unwrap();
    let (first, rest) = (
        bfc.allocate(Bytes(3 * MIB), Stream(0)).unwrap(),
        bfc.allocate(Bytes(5 * MIB), Stream(0)).unwrap(),
    );
    let sizes: Vec<u64> = bfc.segments()[0].blocks.iter().map(|block| block.size.0).collect();
    assert_eq!(sizes, [3 * MIB, 5 * MIB]);
    bfc.free(first).unwrap();
    bfc.free(rest).unwrap();
}

#[test]
fn bfc_fragmentation_is_free_memory_outside_its_largest_chunk() {
    let settings = bfc::Settings {
        limit: Some(Bytes(8 * MIB)),
        allow_growth: false,
        ..bfc::Settings::default()
    };
    let mut bfc = Bfc::new(ModelMemory::new(Bytes::from_mib(64)), settings).unwrap();
    let sizes = [MIB, MIB, 3 * MIB, 3 * MIB];
    let mut taken: Vec<_> =
        sizes.iter().map(|size| bfc.allocate(Bytes(*size), Stream(0)).unwrap()).collect();
    assert_eq!(bfc.statistics().fragmentation, 0.0);
    let (third, first) = (taken.remove(2), taken.remove(0));
    bfc.free(third).unwrap();
    assert_eq!(bfc.statistics().fragmentation, 0.0, "all of it is one chunk");
    bfc.free(first).unwrap();
    assert_eq!(bfc.statistics().fragmentation, 0.25);
    taken.into_iter().for_each(|one| bfc.free(one).unwrap());
}
