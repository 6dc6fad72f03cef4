//! Checks a schedule against the model, independently of the code that made it.

use super::cluster::Cluster;
use super::dag::{Dag, Input};
use super::schedule::{Schedule, Slot, Transfer};
use gpu_core::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// The kind of error in a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Its number of items or processors differs, or the schedule or the graph refers to
    /// nonexistent ones.
    #[error("the schedule is not one of this graph and this cluster")]
    Shape,
    /// An item is where it cannot run, or its duration is wrong.
    #[error("item '{item}' cannot run there, or not for that time")]
    Time {
        /// The item.
        item: Arc<str>,
    },
    /// Items of one group are on different processors.
    #[error("item '{item}' is not with its group")]
    Group {
        /// The item.
        item: Arc<str>,
    },
    /// An item starts before an input is available.
    #[error("item '{item}' starts before its input from '{input}' arrives")]
    Input {
        /// The item.
        item: Arc<str>,
        /// The source of the input.
        input: Arc<str>,
    },
    /// A transfer starts before its value exists, is too short, or is made twice.
    #[error("the transfer of an output of '{item}' is too early, too short or made twice")]
    Transfer {
        /// The item that made the value.
        item: Arc<str>,
    },
    /// Two items run at the same time, or two transfers share a port.
    #[error("two items or transfers overlap on processor '{processor}'")]
    Overlap {
        /// The processor.
        processor: Arc<str>,
    },
    /// The memory of a processor is exceeded.
    #[error("processor '{processor}' needs {} bytes of memory", .needed.0)]
    Memory {
        /// The processor.
        processor: Arc<str>,
        /// The maximum memory in use at one time.
        needed: Bytes,
    },
    /// The end or the peaks do not match the slots.
    #[error("the end or the peak memory of the schedule is wrong")]
    Totals,
}

/// Checks a schedule: inputs with their transfers, one item at a time on a processor, ports, memory,
/// processors that can run the items, groups, and the totals.
///
/// # Errors
/// The first violation.
pub fn verify(dag: &Dag, cluster: &Cluster, schedule: &Schedule) -> Result<(), Violation> {
    let processors = cluster.processors.len();
    let in_cluster = |index: u32| (index as usize) < processors;
    let known = |transfer: &Transfer| {
        let item = dag.items.get(transfer.item as usize);
        in_cluster(transfer.from)
            && in_cluster(transfer.to)
            && transfer.start_nanos <= transfer.end_nanos
            && item.and_then(|item| item.outputs.get(transfer.output as usize))
                == Some(&transfer.bytes)
    };
    let exists = |input: &Input| {
        let from = dag.items.get(input.item as usize);
        from.is_some_and(|from| input.output.is_none_or(|at| (at as usize) < from.outputs.len()))
    };
    if schedule.slots.len() != dag.items.len()
        || schedule.peaks.len() != processors
        || !schedule.slots.iter().all(|slot| in_cluster(slot.processor))
        || !schedule.transfers.iter().all(known)
        || !dag.items.iter().flat_map(|item| &item.inputs).all(exists)
    {
        return Err(Violation::Shape);
    }
    check_slots(dag, schedule)?;
    let arrivals = transfers(dag, cluster, schedule)?;
    inputs(dag, cluster, schedule, &arrivals)?;
    overlaps(cluster, schedule)?;
    let peaks = peaks(dag, schedule, processors);
    for (processor, peak) in cluster.processors.iter().zip(&peaks) {
        if processor.memory.is_some_and(|limit| *peak > limit) {
            return Err(Violation::Memory { processor: processor.name.clone(), needed: *peak });
        }
    }
    let end = schedule.slots.iter().map(|slot| slot.end_nanos).max().unwrap_or(0);
    if end != schedule.makespan_nanos || peaks != schedule.peaks {
        return Err(Violation::Totals);
    }
    Ok(())
}

fn check_slots(dag: &Dag, schedule: &Schedule) -> Result<(), Violation> {
    let mut groups = HashMap::new();
    for (item, slot) in dag.items.iter().zip(&schedule.slots) {
        let nanos = item.nanos.get(slot.processor as usize).copied().flatten();
        if item.fixed.is_some_and(|fixed| fixed != slot.processor)
            || nanos.and_then(|nanos| slot.start_nanos.checked_add(nanos)) != Some(slot.end_nanos)
        {
            return Err(Violation::Time { item: item.name.clone() });
        }
        if let Some(group) = item.group
            && *groups.entry(group).or_insert(slot.processor) != slot.processor
        {
            return Err(Violation::Group { item: item.name.clone() });
        }
    }
    Ok(())
}

/// Checks the transfers and returns when each value arrives on a processor.
fn transfers(
    dag: &Dag,
    cluster: &Cluster,
    schedule: &Schedule,
) -> Result<HashMap<(u32, u32, u32), u64>, Violation> {
    let mut arrivals = HashMap::new();
    for transfer in &schedule.transfers {
        let made = schedule.slots[transfer.item as usize];
        let route = cluster.route(transfer.from, transfer.to);
        let length = transfer.end_nanos - transfer.start_nanos;
        let key = (transfer.item, transfer.output, transfer.to);
        if made.processor != transfer.from
            || transfer.to == transfer.from
            || transfer.start_nanos < made.end_nanos
            || length < route.nanos(transfer.bytes.0)
            || arrivals.insert(key, transfer.end_nanos).is_some()
        {
            let item = dag.items[transfer.item as usize].name.clone();
            return Err(Violation::Transfer { item });
        }
    }
    Ok(arrivals)
}

fn inputs(
    dag: &Dag,
    cluster: &Cluster,
    schedule: &Schedule,
    arrivals: &HashMap<(u32, u32, u32), u64>,
) -> Result<(), Violation> {
    for (item, slot) in dag.items.iter().zip(&schedule.slots) {
        for input in &item.inputs {
            let made = schedule.slots[input.item as usize];
            let arrival = match input.output {
                _ if made.processor == slot.processor => Some(made.end_nanos),
                Some(output) => arrivals.get(&(input.item, output, slot.processor)).copied(),
                None => {
                    let route = cluster.route(made.processor, slot.processor);
                    made.end_nanos.checked_add(route.latency_nanos)
                }
            };
            if arrival.is_none_or(|arrival| arrival > slot.start_nanos) {
                let input = dag.items[input.item as usize].name.clone();
                return Err(Violation::Input { item: item.name.clone(), input });
            }
        }
    }
    Ok(())
}

fn overlaps(cluster: &Cluster, schedule: &Schedule) -> Result<(), Violation> {
    for (at, processor) in (0_u32..).zip(&cluster.processors) {
        let here = |slot: &&Slot| slot.processor == at;
        let slots = schedule.slots.iter().filter(here);
        let slots = slots.map(|slot| (slot.start_nanos, slot.end_nanos)).collect();
        let mut lanes: Vec<Vec<(u64, u64)>> = vec![slots];
        if cluster.one_port {
            let port = |is_here: fn(&Transfer) -> u32| {
                let here = schedule.transfers.iter().filter(|transfer| is_here(transfer) == at);
                here.map(|transfer| (transfer.start_nanos, transfer.end_nanos)).collect()
            };
            lanes.push(port(|transfer| transfer.from));
            lanes.push(port(|transfer| transfer.to));
        }
        for mut lane in lanes {
            // Work that takes no time does not occupy a lane.
            lane.retain(|(start, end): &(u64, u64)| start < end);
            lane.sort_unstable();
            if lane.windows(2).any(|pair| pair[0].1 > pair[1].0) {
                return Err(Violation::Overlap { processor: processor.name.clone() });
            }
        }
    }
    Ok(())
}

/// Returns the most memory in use at one time, for each processor.
fn peaks(dag: &Dag, schedule: &Schedule, processors: usize) -> Vec<Bytes> {
    // For each value on each processor, the time of its creation and the end of its last use.
    let mut lives: HashMap<(u32, u32, u32), (u64, u64)> = HashMap::new();
    for ((at, item), slot) in (0_u32..).zip(&dag.items).zip(&schedule.slots) {
        for (output, _) in (0_u32..).zip(&item.outputs) {
            lives.insert((at, output, slot.processor), (slot.start_nanos, slot.end_nanos));
        }
    }
    for transfer in &schedule.transfers {
        let life = (transfer.start_nanos, transfer.end_nanos);
        lives.insert((transfer.item, transfer.output, transfer.to), life);
    }
    let mut last_use = |key: (u32, u32, u32), end: u64| {
        if let Some(life) = lives.get_mut(&key) {
            life.1 = life.1.max(end);
        }
    };
    for transfer in &schedule.transfers {
        last_use((transfer.item, transfer.output, transfer.from), transfer.end_nanos);
    }
    for (item, slot) in dag.items.iter().zip(&schedule.slots) {
        for input in &item.inputs {
            if let Some(output) = input.output {
                last_use((input.item, output, slot.processor), slot.end_nanos);
            }
        }
    }
    let mut base = vec![0_i128; processors];
    let mut steps: Vec<Vec<(u64, i128)>> = vec![Vec::new(); processors];
    let mut live = |processor: u32, (start, end): (u64, u64), bytes: Bytes| {
        let bytes = i128::from(bytes.0);
        steps[processor as usize].extend([(start, bytes), (end, -bytes)]);
    };
    for ((item, output, processor), life) in lives {
        let made = &dag.items[item as usize];
        if !made.keeps_outputs || processor != schedule.slots[item as usize].processor {
            live(processor, life, made.outputs[output as usize]);
        }
    }
    for (item, slot) in dag.items.iter().zip(&schedule.slots) {
        live(slot.processor, (slot.start_nanos, slot.end_nanos), item.workspace);
        base[slot.processor as usize] += i128::from(item.persistent.0);
    }
    let peak = |(base, mut steps): (i128, Vec<(u64, i128)>)| {
        // At equal times, releases come before allocations.
        steps.sort_unstable();
        let mut level = base;
        let levels = steps.iter().map(|(_, step)| {
            level += step;
            level
        });
        Bytes(u64::try_from(levels.max().unwrap_or(base).max(base)).unwrap_or(u64::MAX))
    };
    base.into_iter().zip(steps).map(peak).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, Item, Processor};
    use super::*;
    use gpu_core::Route;

    fn slot(processor: u32, start_nanos: u64) -> Slot {
        Slot { processor, start_nanos, end_nanos: start_nanos + 10 }
    }

    fn transfer(item: u32, start_nanos: u64) -> Transfer {
        let end_nanos = start_nanos + 5;
        Transfer { start_nanos, end_nanos, item, output: 0, from: 0, to: 1, bytes: Bytes(5) }
    }

    /// Two sources on processor 0 and, on processor 1, an item that needs both.
    fn example() -> (Dag, Cluster, Schedule) {
        let item = |name: &str, inputs: &[u32]| Item {
            name: name.into(),
            inputs: inputs.iter().map(|item| Input::value(*item, 0)).collect(),
            outputs: vec![Bytes(5)],
            nanos: vec![Some(10); 2],
            ..Item::default()
        };
        let dag = Dag { items: vec![item("a", &[]), item("b", &[]), item("sum", &[0, 1])] };
        let processor = |name: &str| Processor { name: name.into(), speed: 1.0, memory: None };
        let route = Route { latency_nanos: 0, bytes_per_second: 1_000_000_000 };
        let cluster = Cluster {
            processors: vec![processor("p"), processor("q")],
            routes: vec![vec![Route::default(), route], vec![route, Route::default()]],
            one_port: true,
        };
        let schedule = Schedule {
            slots: vec![slot(0, 0), slot(0, 10), slot(1, 25)],
            transfers: vec![transfer(0, 10), transfer(1, 20)],
            makespan_nanos: 35,
            peaks: vec![Bytes(10), Bytes(15)],
            reasons: vec![Choice::Searched; 3],
        };
        (dag, cluster, schedule)
    }

    #[test]
    fn valid_schedule_passes() {
        let (dag, cluster, schedule) = example();
        assert_eq!(verify(&dag, &cluster, &schedule), Ok(()));
    }

    #[test]
    fn each_violation_is_reported() {
        let (dag, cluster, good) = example();
        let of = |dag: &Dag, change: &dyn Fn(&mut Schedule)| {
            let mut schedule = good.clone();
            change(&mut schedule);
            verify(dag, &cluster, &schedule).unwrap_err().to_string()
        };
        let twice = "two items or transfers overlap on processor 'p'";
        assert_eq!(of(&dag, &|of| of.slots[1] = slot(0, 9)), twice);
        let made = "the transfer of an output of 'b' is too early, too short or made twice";
        assert_eq!(of(&dag, &|of| of.transfers[1].start_nanos = 19), made);
        assert_eq!(of(&dag, &|of| of.transfers[1].start_nanos = 21), made);
        assert_eq!(of(&dag, &|of| of.transfers.push(transfer(1, 25))), made);
        let late = |of: &mut Schedule| of.transfers[0] = transfer(0, 18);
        assert_eq!(of(&dag, &late), twice);
        let early = "item 'sum' starts before its input from 'b' arrives";
        assert_eq!(of(&dag, &|of| of.slots[2] = slot(1, 24)), early);
        let shape = "the schedule is not one of this graph and this cluster";
        assert_eq!(of(&dag, &|of| of.slots[2].processor = 2), shape);
        assert_eq!(of(&dag, &|of| of.slots.truncate(2)), shape);
        assert_eq!(of(&dag, &|of| of.transfers[0].bytes = Bytes(1)), shape);
        let mut missing = dag.clone();
        missing.items[2].inputs[0] = Input::value(3, 0);
        assert_eq!(of(&missing, &|_| ()), shape);
        missing.items[2].inputs[0] = Input::value(0, 1);
        assert_eq!(of(&missing, &|_| ()), shape);
        let totals = "the end or the peak memory of the schedule is wrong";
        assert_eq!(of(&dag, &|of| of.makespan_nanos = 34), totals);
        let mut grouped = dag.clone();
        grouped.items[0].group = Some(3);
        grouped.items[2].group = Some(3);
        assert_eq!(of(&grouped, &|_| ()), "item 'sum' is not with its group");
        let mut fixed = dag.clone();
        fixed.items[0].fixed = Some(1);
        assert_eq!(of(&fixed, &|_| ()), "item 'a' cannot run there, or not for that time");
    }

    #[test]
    fn ports_matter_only_if_there_is_one() {
        let (dag, mut cluster, mut schedule) = example();
        schedule.transfers[0] = transfer(0, 18);
        schedule.peaks = vec![Bytes(10), Bytes(15)];
        cluster.one_port = false;
        assert_eq!(verify(&dag, &cluster, &schedule), Ok(()));
    }
}
