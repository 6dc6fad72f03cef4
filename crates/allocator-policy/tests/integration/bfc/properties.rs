//! Comparison with a naive model.

use crate::fixture::{Faulty, Model, Step, free_space, steps};
use gpu_allocator_policy::bfc::{BackOff, Settings};
use gpu_allocator_policy::{Bfc, Policy};
use gpu_core::{Bytes, DeviceFault};
use proptest::prelude::*;
use std::sync::Arc;

const LIMIT: u64 = 24 << 20;

fn settings() -> impl Strategy<Value = Settings> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (flags, 1..=3u64).prop_map(|((allow_growth, garbage_collection, always, adjacent), part)| {
        Settings {
            limit: Some(Bytes(LIMIT / part + part)),
            allow_growth,
            garbage_collection,
            fragmentation_fraction: if always { 0.01 } else { 0.0 },
            back_off: if always { BackOff::Always } else { BackOff::Once },
            adjacent_regions: adjacent,
            ..Settings::default()
        }
    })
}

/// Returns the memory that the modelled device charges for the held regions.
fn charged(policy: &impl Policy) -> u64 {
    let sizes = policy.segments().into_iter().map(|segment| segment.size.0);
    let sizes = sizes.map(|size| size.next_multiple_of(512));
    sizes.map(|size| if size < 1 << 20 { size } else { size.next_multiple_of(2 << 20) }).sum()
}

proptest! {
    #[test]
    fn bfc_matches_naive_model(settings in settings(), steps in steps(LIMIT / 4)) {
        let memory = Faulty::new(Bytes(LIMIT * 3 / 4));
        let policy = Bfc::new(Arc::clone(&memory), settings).expect("a limit is set");
        let mut model = Model::new(policy);
        for step in &steps {
            model.step(step);
            let held = model.policy.reserved();
            prop_assert_eq!(memory.model.used().0, charged(&model.policy));
            let most = settings.limit.map(|limit| limit.0.next_multiple_of(2 << 20));
            prop_assert!(Some(held.0) <= most);
        }
        drop(model.policy);
        prop_assert_eq!(memory.model.used(), Bytes(0));
    }

    #[test]
    fn free_order_does_not_matter(
        settings in settings(),
        steps in steps(LIMIT / 8),
        orders in any::<(u64, u64)>(),
    ) {
        let run = |order| {
            let memory = Faulty::new(Bytes(LIMIT));
            let policy = Bfc::new(memory, settings).expect("a limit is set");
            let mut model = Model::new(policy);
            steps.iter().filter(|step| !matches!(step, Step::EmptyCache)).for_each(|step| {
                model.step(step);
            });
            model.free_all(order);
            free_space(&model.policy)
        };
        let (one, other) = (run(orders.0), run(orders.1));
        prop_assert_eq!(&one, &other);
        // Each region is one free chunk again.
        prop_assert!(one.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }

    #[test]
    fn device_failure_leaves_state_unchanged(
        settings in settings(),
        steps in steps(LIMIT / 4),
        nth in 1..12u64,
        lost in any::<bool>(),
    ) {
        let memory = Faulty::new(Bytes(LIMIT));
        let policy = Bfc::new(Arc::clone(&memory), settings).expect("a limit is set");
        let mut model = Model::new(policy);
        model.may_fail = true;
        let fault = if lost { DeviceFault::Lost } else { DeviceFault::OutOfMemory };
        memory.fail(nth, fault);
        for step in &steps {
            model.step(step);
        }
        memory.fail(0, fault);
        drop(model.policy);
        prop_assert_eq!(memory.model.used(), Bytes(0));
    }
}
