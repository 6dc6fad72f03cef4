//! Comparison with a naive model.

use crate::fixture::{Faulty, Model, Step, free_space, steps};
use gpu_allocator_policy::stream_ordered::Settings;
use gpu_allocator_policy::{Direct, Failure, Policy, StreamOrdered};
use gpu_core::{Bytes, DeviceFault};
use proptest::prelude::*;
use std::sync::Arc;

const TOTAL: u64 = 160 << 20;

fn settings() -> impl Strategy<Value = Settings> {
    (0..4u64, any::<bool>(), any::<bool>()).prop_map(|(regions, limited, dependencies)| Settings {
        release_threshold: Bytes(regions * (32 << 20)),
        largest: limited.then_some(Bytes(100 << 20)),
        internal_dependencies: dependencies,
    })
}

proptest! {
    #[test]
    fn direct_matches_naive_model(steps in steps(TOTAL / 8)) {
        let memory = Faulty::new(Bytes(TOTAL));
        let mut model = Model::new(Direct::new(Arc::clone(&memory)));
        for step in &steps {
            model.step(step);
            prop_assert_eq!(memory.model.used(), model.policy.reserved());
        }
        model.free_all(3);
        prop_assert_eq!(free_space(&model.policy), []);
        prop_assert_eq!(memory.model.used(), Bytes(0));
    }

    #[test]
    fn stream_ordered_matches_naive_model(
        settings in settings(),
        steps in steps(TOTAL / 4),
        order in any::<u64>(),
    ) {
        let memory = Faulty::new(Bytes(TOTAL));
        let mut model = Model::new(StreamOrdered::new(Arc::clone(&memory), settings));
        for (nth, step) in steps.iter().enumerate() {
            model.step(step);
            if nth % 7 == 0 {
                prop_assert!(model.policy.synchronize(None).is_ok());
                model.compare();
            }
            prop_assert_eq!(memory.model.used(), model.policy.reserved());
            prop_assert!(settings.largest.is_none_or(|largest| model.policy.reserved() <= largest));
        }
        model.free_all(order);
        prop_assert!(model.policy.synchronize(None).is_ok());
        // Each region is a single free block again, in any order.
        let free = free_space(&model.policy);
        prop_assert_eq!(free.len() as u64, model.policy.usage().segments);
        prop_assert!(model.policy.empty_cache().is_ok());
        prop_assert_eq!(memory.model.used(), Bytes(0));
    }

    #[test]
    fn device_failure_leaves_state_unchanged(
        steps in steps(TOTAL / 4),
        nth in 1..20u64,
        pool in any::<bool>(),
    ) {
        fn run(policy: impl Policy, memory: &Faulty, steps: &[Step], nth: u64) {
            let mut model = Model::new(policy);
            model.may_fail = true;
            memory.fail(nth, DeviceFault::Lost);
            for step in steps {
                model.step(step);
            }
            memory.fail(0, DeviceFault::Lost);
        }
        let memory = Faulty::new(Bytes(TOTAL));
        if pool {
            let policy = StreamOrdered::new(Arc::clone(&memory), Settings::default());
            run(policy, &memory, &steps, nth);
        } else {
            run(Direct::new(Arc::clone(&memory)), &memory, &steps, nth);
        }
        prop_assert_eq!(memory.model.used(), Bytes(0));
    }
}

#[test]
fn summary_contains_figures() {
    let mut direct = Direct::new(Faulty::new(Bytes(TOTAL)));
    let _kept = direct.allocate(Bytes(1000), gpu_allocator_policy::Stream(0));
    let huge = direct.allocate(Bytes(TOTAL + 1), gpu_allocator_policy::Stream(0));
    assert!(matches!(huge, Err(Failure::OutOfMemory(_))));
    let text = direct.summary();
    for part in ["direct: 1 allocations in 1 regions", "1024 B", "1000 B", "1 OOMs"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
