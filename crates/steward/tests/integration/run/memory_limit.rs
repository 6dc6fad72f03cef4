//! A job with a share of memory: its limit in the environment, and a running MPS server.

use super::*;
use gpu_memory_advice::environment::{Framework, READ, Used, Version};

/// A share of 4,000 MiB, for a program that uses these frameworks.
fn bounded(used: Vec<Used>, inherited: &[(&str, &str)]) -> RunOrder {
    let share = Share::Memory(Bytes::from_mib(4_000));
    let inherited = inherited.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let bounding =
        MemoryLimit { context: Bytes::from_mib(500), used, inherited: inherited.collect() };
    let claim = Claim { share, ..Claim::whole(2) };
    RunOrder { bounding: Some(bounding), ..order(claim) }
}

fn set_for(world: &World, name: &str) -> Option<String> {
    let launched = world.state().launched[0].clone();
    let found = launched.set.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.to_str().unwrap().to_owned())
}

#[test]
fn memory_share_is_set_in_environment() {
    const JAX: &str = "XLA_PYTHON_CLIENT_MEM_FRACTION";
    let jax = Used { framework: Framework::Jax, version: None };
    let torch =
        Used { framework: Framework::Torch, version: Some(Version { major: 2, minor: 10 }) };
    let world = World::new(2);
    world.state().devices[1].total = 32_000;
    ends_after(&world, SECOND, 0);
    let settings = [("PYTORCH_ALLOC_CONF", "expandable_segments:True")];
    let (report, events) = outcome(&world, &bounded(vec![jax, torch], &settings));
    assert_eq!(report.unwrap().ending, JobExit::Code(0));
    // 3,500 of 32,000 MiB, the larger of the two.
    assert_eq!(set_for(&world, JAX).as_deref(), Some("0.1093"));
    let torch = "expandable_segments:True,per_process_memory_fraction:0.1093";
    assert_eq!(set_for(&world, "PYTORCH_ALLOC_CONF").as_deref(), Some(torch));
    assert!(set_for(&world, "CUDA_VISIBLE_DEVICES").is_some());
    let position = |start: &str| events.iter().position(|event| event.starts_with(start));
    assert!(
        position("Granted") < position("Bounded") && position("Bounded").is_some(),
        "{events:?}"
    );

    let world = World::new(2);
    ends_after(&world, SECOND, 0);
    let whole = RunOrder { request: order(Claim::whole(2)).request, ..bounded(vec![jax], &[]) };
    ran(&world, &whole);
    assert_eq!(set_for(&world, JAX), None, "whole devices need no share");
}

#[test]
fn mps_server_is_detected_by_process_or_environment() {
    const LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
    assert!(READ.contains(&LIMIT));
    for (server, named, expected) in [
        (Some("nvidia-cuda-mps-server"), None, Some("0=4000M,1=4000M")),
        (None, Some("/tmp/mps"), Some("0=4000M,1=4000M")),
        (Some("python"), None, None),
        (None, None, None),
    ] {
        let world = World::new(2);
        if let Some(name) = server {
            world.state().add(process(100, 1, name));
            world.state().uses(100, 0, 30);
        }
        ends_after(&world, SECOND, 0);
        let named: Vec<_> = named.iter().map(|dir| ("CUDA_MPS_PIPE_DIRECTORY", *dir)).collect();
        let mut order = bounded(Vec::new(), &named);
        order.request.claim.accept_used = true;
        ran(&world, &order);
        assert_eq!(set_for(&world, LIMIT).as_deref(), expected, "{server:?} {named:?}");
    }
}

#[test]
fn observer_can_abort_before_job_is_limited_and_started() {
    let world = World::new(2);
    let token = ActToken::user_confirmed();
    let order = bounded(Vec::new(), &[]);
    let stopped = run(&order, &world.ports(), &world, &token, &mut |event| match event {
        Event::Bounded(advice) => {
            assert!(advice.variables.is_empty() && !advice.notes.is_empty());
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    assert!(matches!(stopped, Err(NotRun::Stopped)));
    assert!(world.state().launched.is_empty() && world.state().leases.is_empty());
}
