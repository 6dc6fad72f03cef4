//! Reproduces the decisions of llama.cpp's `--fit` (`common/fit.cpp`), using the predictor instead
//! of a loaded model.
//!
//! First, the context is reduced by linear interpolation. Then layers are assigned to the devices
//! from last to first, with the method of false position for each count. Experts start on the CPU
//! and are moved back beginning with the first device, down to parts of one layer.

use super::super::Rooms;
use super::super::plan::{Moved, Split, measure, pinned_room};
use super::{feed_forward, gpus, placed};
use crate::model::Model;
use crate::need::{Chain, Kind, Run, Unknown, chain};
use gpu_core::Bytes;

/// The options of `--fit`.
#[derive(Clone, Debug, PartialEq)]
pub struct FitOptions {
    /// The memory that each device keeps free (`-fitt`).
    pub margin: Bytes,
    /// The minimum context (`-fitc`).
    pub least_context: u64,
    /// The context if it was requested (`-c`), which is then fixed.
    pub context: Option<u64>,
    /// The number of layers on GPUs if it was requested (`-ngl`).
    pub layers: Option<usize>,
    /// The device shares if they were requested (`--tensor-split`).
    pub shares: Vec<f32>,
}

impl Default for FitOptions {
    fn default() -> Self {
        let margin = Bytes::from_mib(1024);
        FitOptions { margin, least_context: 4096, context: None, layers: None, shares: Vec::new() }
    }
}

/// The result of `--fit`.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The context.
    pub context: u64,
    /// Whether the placement differs from that without `--fit`.
    pub replaced: bool,
    /// The layers with this context.
    pub chain: Chain,
    /// The placement.
    pub split: Split,
}

/// The reason why `--fit` gives up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// The model cannot be divided into layers.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// There is no device for the layers.
    #[error("fit the model: there is no GPU")]
    NoGpu,
    /// An argument that it would have to change was given.
    #[error("fit the model: {0} is already set")]
    Fixed(&'static str),
}

/// Returns the result of `--fit` for a model on rooms, using their capacity as free memory. The
/// context of the run is replaced.
///
/// # Errors
/// [`FitError`] if the model is unknown, if there is no GPU, or if layers would have to be moved
/// although arguments fix their placement.
pub fn fit(model: &Model, run: &Run, rooms: &Rooms, options: &FitOptions) -> Result<Fit, FitError> {
    let gpus = gpus(rooms);
    if gpus.is_empty() {
        return Err(FitError::NoGpu);
    }
    let trained = model.shape.as_ref().and_then(|shape| shape.context);
    // Each stream has its own context.
    let streams = if run.unified { 1 } else { run.sequences.max(1) };
    let least = options.least_context.saturating_mul(streams);
    let trained = trained.map_or(least, |trained| trained.saturating_mul(streams));
    let with = |context| chain(model, &Run { context, ..run.clone() });
    let full = options.context.unwrap_or(trained);
    let shares = options.shares.as_slice();
    let usual = |chain: &Chain| placed(chain, rooms, options.layers, shares);
    let planner = Planner { rooms, gpus, margin: options.margin };

    let chain = with(full)?;
    let split = usual(&chain);
    if planner.targets().iter().zip(planner.memory(&split)).all(|(target, used)| used <= *target) {
        return Ok(Fit { context: full, replaced: false, chain, split });
    }
    let (mut context, mut chain) = (full, chain);
    let target: i128 = planner.targets().iter().sum();
    let most: i128 = planner.memory(&split).iter().sum();
    if most > target && options.context.is_none() && trained > least {
        let smallest = with(least)?;
        let used = planner.memory(&usual(&smallest)).iter().sum::<i128>();
        let target = target - planner.waste(&chain, &split, model, options.layers);
        context = least;
        if target > used {
            let grown = i128::from(trained - context) * (target - used) / (most - used).max(1);
            let grown = context.saturating_add(u64::try_from(grown).unwrap_or(0));
            let step = run.sequences.max(1).saturating_mul(256);
            context = (grown - grown % step).max(least);
        }
        chain = with(context)?;
        if target > used && planner.gpus.len() == 1 {
            let split = usual(&chain);
            return Ok(Fit { context, replaced: false, chain, split });
        }
    }
    if options.layers.is_some() {
        return Err(FitError::Fixed("the number of layers on GPUs"));
    }
    if !options.shares.is_empty() {
        return Err(FitError::Fixed("the shares of the GPUs"));
    }
    let split = planner.place(&chain);
    Ok(Fit { context, replaced: true, chain, split })
}

/// Returns the placement that `--fit` chooses for a mixture of experts that does not fit on the
/// GPUs: as many layers on GPUs as fit without their experts, which go to the CPU, and then as many
/// whole layers as fit. `None` for a model without experts, or without a GPU or CPU.
pub fn with_experts_on_cpu(chain: &Chain, rooms: &Rooms) -> Option<Split> {
    let gpus = gpus(rooms);
    let routed = |layer: &crate::need::Layer| layer.parts.iter().any(|p| p.kind.is_routed());
    if gpus.is_empty() || pinned_room(rooms).is_none() || !chain.layers.iter().any(routed) {
        return None;
    }
    Some(Planner { rooms, gpus, margin: chain.overhead }.place(chain))
}

/// The remaining parts of the first partial layer on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    /// All parts except routed experts.
    #[default]
    Dense,
    /// Attention only.
    Attention,
    /// Attention and up projection.
    Up,
    /// Attention, up projection and gate.
    Gate,
}

/// The layers of a device. The last `partial` of them lack experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    layers: usize,
    partial: usize,
    rest: Rest,
}

impl Share {
    fn full(self) -> usize {
        self.layers.saturating_sub(self.partial)
    }
}

struct Planner<'a> {
    rooms: &'a Rooms,
    gpus: Vec<usize>,
    margin: Bytes,
}

impl Planner<'_> {
    /// Returns the bytes that each device may use.
    fn targets(&self) -> Vec<i128> {
        let free = |gpu: &usize| self.rooms.rooms.get(*gpu).map_or(0, |room| room.capacity.0);
        self.gpus.iter().map(|gpu| i128::from(free(gpu)) - i128::from(self.margin.0)).collect()
    }

    /// Returns the bytes that each device uses.
    fn memory(&self, split: &Split) -> Vec<i128> {
        let used = |gpu: &usize| split.used.get(*gpu).copied().unwrap_or_default();
        let sum = |gpu| {
            let used = used(gpu);
            i128::from((used.weights + used.context + used.buffer).0)
        };
        self.gpus.iter().map(sum).collect()
    }

    /// Returns the expected waste when several devices hold whole layers, in bytes.
    fn waste(&self, chain: &Chain, split: &Split, model: &Model, layers: Option<usize>) -> i128 {
        if self.gpus.len() < 2 {
            return 0;
        }
        let weights = |gpu: &usize| split.used.get(*gpu).map_or(0, |used| used.weights.0);
        let weights: i128 = self.gpus.iter().map(|gpu| i128::from(weights(gpu))).sum();
        let count = layers.unwrap_or(usize::MAX).min(chain.blocks()).max(1);
        let experts = model.shape.as_ref().is_some_and(|shape| shape.experts.is_some());
        let parts = if experts { 6 } else { 2 };
        (self.gpus.len() as i128 + 1) * (weights / count as i128) / parts
    }

    /// Returns the placement for these shares.
    fn split(&self, chain: &Chain, shares: &[Share]) -> Split {
        let cpu = pinned_room(self.rooms);
        let all = chain.blocks() + 1;
        let placed: usize = shares.iter().map(|share| share.layers).sum();
        let mut assigned = vec![cpu; chain.layers.len()];
        let mut moved = Vec::new();
        let mut next = all.saturating_sub(placed);
        for (device, share) in shares.iter().enumerate() {
            let gpu = self.gpus.get(device).copied();
            for number in next..next + share.layers {
                // The chain begins with the input.
                if let Some(slot) = assigned.get_mut(number + 1) {
                    *slot = gpu;
                }
                let partial = next + share.full();
                if number < partial {
                    continue;
                }
                let rest = if number == partial { share.rest } else { Rest::Dense };
                let away = match rest {
                    Rest::Dense => cpu,
                    _ => self.gpus.get(device + 1).copied().or(cpu),
                };
                let kinds = match rest {
                    Rest::Dense => vec![Kind::ExpertGate, Kind::ExpertUp, Kind::ExpertDown],
                    Rest::Attention => feed_forward(true, true, true),
                    Rest::Up => feed_forward(true, false, true),
                    Rest::Gate => feed_forward(false, false, true),
                };
                // The output counts as a layer, but its tensors do not move.
                if let Some(room) = away
                    && number < chain.blocks()
                {
                    moved.push(Moved { layer: number + 1, kinds, room });
                }
            }
            next += share.layers;
        }
        measure(chain, self.rooms, assigned, moved)
    }

    fn memory_of(&self, chain: &Chain, shares: &[Share]) -> Vec<i128> {
        self.memory(&self.split(chain, shares))
    }

    fn place(&self, chain: &Chain) -> Split {
        let routed = |layer: &crate::need::Layer| layer.parts.iter().any(|p| p.kind.is_routed());
        let experts = chain.layers.iter().any(routed);
        let mut shares = vec![Share::default(); self.gpus.len()];
        for device in (0..self.gpus.len()).rev() {
            self.fill(chain, &mut shares, device, experts);
        }
        if experts && self.dense_fits(chain) {
            self.bring_back(chain, &mut shares);
        }
        self.split(chain, &shares)
    }

    /// Returns whether the devices together can hold everything except routed experts.
    fn dense_fits(&self, chain: &Chain) -> bool {
        let usual = placed(chain, self.rooms, None, &[]);
        let Some(cpu) = pinned_room(self.rooms) else { return false };
        let kinds = vec![Kind::ExpertGate, Kind::ExpertUp, Kind::ExpertDown];
        let moved =
            (1..=chain.blocks()).map(|layer| Moved { layer, kinds: kinds.clone(), room: cpu });
        let split = measure(chain, self.rooms, usual.rooms, moved.collect());
        self.memory(&split).iter().sum::<i128>() < self.targets().iter().sum::<i128>()
    }

    /// Assigns as many of the remaining layers to a device as fit, starting with the last.
    fn fill(&self, chain: &Chain, shares: &mut Vec<Share>, device: usize, experts: bool) {
        let last = device + 1 == shares.len();
        let target = self.targets()[device];
        let taken: usize = shares.iter().map(|share| share.layers).sum();
        let give = |shares: &[Share], layers: usize| {
            let mut shares = shares.to_vec();
            let partial = if last { layers.saturating_sub(1) } else { layers };
            let partial = if experts { partial } else { 0 };
            shares[device] = Share { layers, partial, rest: Rest::Dense };
            shares
        };
        let (mut low, mut high) = (0, chain.blocks() + 1 - taken);
        if high == 0 {
            return;
        }
        let of = |shares: &[Share]| self.memory_of(chain, shares)[device];
        let (mut low_used, mut high_used) = (of(shares), of(&give(shares, high)));
        if high_used <= target {
            *shares = give(shares, high);
            return;
        }
        while high - low > 1 {
            let middle = low + step(high - low, target - low_used, high_used - low_used);
            let used = of(&give(shares, middle));
            if used <= target {
                (low, low_used) = (middle, used);
            } else {
                (high, high_used) = (middle, used);
            }
        }
        *shares = give(shares, low);
    }

    /// Turns layers without experts at the back into whole layers at the front.
    fn bring_back(&self, chain: &Chain, shares: &mut Vec<Share>) {
        let count = shares.len();
        // The first of the consecutive devices at the end that have layers.
        let empty = shares.iter().rposition(|share| share.layers == 0);
        let mut start = empty.map_or(0, |empty| empty + 1);
        let mut device = 0;
        while device <= start && start < count {
            self.convert(chain, shares, device, &mut start);
            self.add_partial(chain, shares, device, &mut start);
            device += 1;
        }
    }

    fn convert(&self, chain: &Chain, shares: &mut Vec<Share>, device: usize, start: &mut usize) {
        let count = shares.len();
        let target = self.targets()[device];
        let mut high = shares.clone();
        for later in *start..count {
            let moving =
                if later + 1 < count { high[later].layers } else { high[later].layers - 1 };
            high[later].layers -= moving;
            high[later].partial = 0;
            high[device].layers += moving;
        }
        let of = |shares: &[Share]| self.memory_of(chain, shares)[device];
        let (mut low_used, mut high_used) = (of(shares), of(&high));
        if high_used <= target {
            *shares = high;
            *start = count - 1;
            return;
        }
        let mut high_full = high[device].full();
        while high_full - shares[device].full() > 1 {
            let delta = high_full - shares[device].full();
            let wanted = step(delta, target - low_used, high_used - low_used);
            let mut test = shares.clone();
            let mut test_start = *start;
            let mut converted = 0;
            while test_start < count {
                let part = (wanted - converted).min(test[test_start].partial);
                test[test_start].layers -= part;
                test[test_start].partial -= part;
                test[device].layers += part;
                converted += part;
                if test[test_start].partial > 0 {
                    break;
                }
                test_start += 1;
            }
            if converted == 0 {
                return;
            }
            let used = of(&test);
            if used <= target {
                (*shares, low_used, *start) = (test, used, test_start);
            } else {
                (high_full, high_used) = (test[device].full(), used);
            }
        }
    }

    /// Adds parts of one more layer to a device.
    fn add_partial(
        &self,
        chain: &Chain,
        shares: &mut Vec<Share>,
        device: usize,
        start: &mut usize,
    ) {
        let count = shares.len();
        let least = if device + 1 < count { 0 } else { 1 };
        let Some(from) = shares.get(*start).filter(|from| from.layers > least) else { return };
        if from.partial == 0 {
            return;
        }
        let mut test = shares.clone();
        test[*start].layers -= 1;
        test[*start].partial -= 1;
        test[device].layers += 1;
        test[device].partial += 1;
        let test_start = if test[*start].partial == 0 { *start + 1 } else { *start };
        let targets = self.targets();
        let mut attempt = |rest: Rest| {
            test[device].rest = rest;
            let used = self.memory_of(chain, &test);
            let next = device + 1;
            let fits =
                used[device] < targets[device] && (next == count || used[next] < targets[next]);
            if fits {
                *shares = test.clone();
                *start = test_start;
            }
            fits
        };
        if attempt(Rest::Up) {
            attempt(Rest::Gate);
        } else {
            attempt(Rest::Attention);
        }
    }
}

/// Returns how far to step between two bounds, by linear interpolation.
fn step(delta: usize, room: i128, range: i128) -> usize {
    let step = (delta as i128).saturating_mul(room) / range.max(1);
    usize::try_from(step).unwrap_or(0).clamp(1, delta.saturating_sub(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_in_proportion_and_between_the_bounds() {
        assert_eq!((step(10, 50, 100), step(10, 59, 100)), (5, 5));
        // At least one layer, and never the upper bound, which is known not to fit.
        assert_eq!((step(10, 0, 100), step(10, -50, 100)), (1, 1));
        assert_eq!((step(10, 100, 100), step(10, 500, 100)), (9, 9));
        assert_eq!((step(2, 500, 100), step(1, 500, 100)), (1, 1));
        // Layers without memory do not divide by zero.
        assert_eq!(step(10, 4, 0), 9);
    }
}
