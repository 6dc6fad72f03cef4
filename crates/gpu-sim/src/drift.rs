//! Values that drift with time.
//!
//! A busy device changes constantly: its utilisation, temperature, power, clocks, fan and traffic
//! fluctuate around the described values. The values are a function
//! of seed, device and second, so every process that reads a simulated machine sees the same
//! values, as does a repeated test. Its counters of energy and PCIe traffic grow. Values do not drift on an idle device, or in the first second,
//! in which a recorded machine is exactly as recorded.

use crate::machine::Device;
use crate::seed::{Seed, fnv1a};
use crate::state::State;
use gpu_core::{Bytes, Celsius, DeviceDetails, DeviceSample, Milliwatts, Percent, Reading};

/// The deviation of a device from its description, in one second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drift {
    seed: Seed,
    device: u32,
    /// The whole seconds since the described state.
    second: u64,
    /// The load that all kernels together request, in percent.
    load: u64,
}

/// The largest deviation of a value: utilisation and fan in percent of the whole, temperature in
/// degrees, power and traffic in thousandths of the value.
const UTILIZATION: i64 = 4;
const MEMORY_ACTIVITY: i64 = 3;
const FAN: i64 = 2;
const TEMPERATURE: i64 = 2;
const POWER: i64 = 40;
const TRAFFIC: i64 = 250;
/// The step in which clocks change, in MHz, and the maximum number of steps that they fall.
const CLOCK_STEP: u32 = 15;
const CLOCK_STEPS: u64 = 4;

impl State {
    /// Returns the current deviation of a device from its description.
    pub(crate) fn drift(&self, device: &Device) -> Drift {
        let second = self.now.saturating_sub(self.described_at).as_secs();
        let (seed, device_index) = (self.seed, device.info.id.index);
        Drift { seed, device: device_index, second, load: self.load(device) }
    }
}

impl Drift {
    fn moves(self) -> bool {
        self.second > 0 && self.load > 0
    }

    /// Draws this second's number for one value; it is always the same.
    fn draw(self, value: &str) -> u64 {
        let numbers = [self.seed.0, u64::from(self.device), self.second];
        let mut bytes = value.as_bytes().to_vec();
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        // On their own, the low bits of the hash depend mostly on the last byte.
        let hash = fnv1a(&bytes);
        (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
    }

    /// Draws a number from `-most` to `most`.
    fn random_offset(self, value: &str, most: i64) -> i64 {
        let span = most.unsigned_abs() * 2 + 1;
        i64::try_from(self.draw(value) % span).unwrap_or(0) - most
    }

    /// Changes a value by at most `most` thousandths.
    fn scaled(self, name: &str, value: u64, most: i64) -> u64 {
        let thousandths = u64::try_from(1000 + self.random_offset(name, most)).unwrap_or(1000);
        value.saturating_mul(thousandths) / 1000
    }

    /// Changes a utilisation, but neither to zero nor above 100 %.
    fn share(self, name: &str, value: u64, most: i64) -> u64 {
        let moved = i64::try_from(value).unwrap_or(100) + self.random_offset(name, most);
        u64::try_from(moved.clamp(1, 100)).unwrap_or(1)
    }

    /// Returns a device's utilisation in percent.
    pub(crate) fn utilization(self) -> u64 {
        let load = self.load.min(100);
        if self.moves() { self.share("utilization", load, UTILIZATION) } else { load }
    }

    /// Returns a process's utilisation, which drifts with that of the device.
    pub(crate) fn part(self, load: u64) -> u64 {
        if !self.moves() || load == 0 {
            return load;
        }
        (load * self.utilization() / self.load.max(1)).clamp(1, 100)
    }

    /// Drifts the values of a sample.
    pub(crate) fn sample(self, sample: &mut DeviceSample) {
        if !self.moves() {
            return;
        }
        sample.power_draw = self.draws(sample.power_draw, sample.power_limit);
        sample.temperature = self.drifted_temperature(sample.temperature, "temperature");
    }

    /// Drifts a power draw, up to the enforced limit.
    fn draws(
        self,
        reported: Reading<Milliwatts>,
        limit: Reading<Milliwatts>,
    ) -> Reading<Milliwatts> {
        let limit = limit.unwrap_or(Milliwatts(u64::MAX));
        reported.map(|draw| Milliwatts(self.scaled("power", draw.0, POWER)).min(limit))
    }

    fn drifted_temperature(self, reported: Reading<Celsius>, name: &str) -> Reading<Celsius> {
        let random_offset = i32::try_from(self.random_offset(name, TEMPERATURE)).unwrap_or(0);
        reported.map(|degrees| Celsius(degrees.0.saturating_add(random_offset)))
    }

    /// Drifts the details of a device.
    pub(crate) fn details(self, details: &mut DeviceDetails, device: &Device) {
        if let (Some(reported), Ok(power)) = (&mut details.power, device.power_draw) {
            let used = power.0.saturating_mul(self.second);
            reported.energy = reported.energy.map(|energy| energy.saturating_add(used));
        }
        if let (Some(link), Some(traffic)) = (&mut details.pcie, &details.pcie_throughput) {
            let passed = |kib: Reading<u32>| {
                Bytes((u64::from(kib.unwrap_or(0)) << 10).saturating_mul(self.second))
            };
            link.sent = link.sent.map(|sent| sent + passed(traffic.sent));
            link.received = link.received.map(|received| received + passed(traffic.received));
        }
        if !self.moves() {
            return;
        }
        if let Some(activity) = &mut details.activity {
            let moved = |percent: Percent| match u64::from(percent.get()) {
                0 => percent,
                reported => {
                    Percent::new(self.share("memory", reported, MEMORY_ACTIVITY)).unwrap_or(percent)
                }
            };
            activity.memory = activity.memory.map(moved);
        }
        if let Some(clocks) = &mut details.clocks {
            let steps = u32::try_from(self.draw("clocks") % (CLOCK_STEPS + 1)).unwrap_or(0);
            let slower = |mhz: u32| match mhz.saturating_sub(steps * CLOCK_STEP) {
                0 => mhz,
                slower => slower,
            };
            clocks.graphics = clocks.graphics.map(slower);
            clocks.sm = clocks.sm.map(slower);
        }
        if let Some(readings) = &mut details.power_readings {
            readings.instant = self.draws(readings.instant, device.power_limit);
            readings.average = self.draws(readings.average, device.power_limit);
        }
        if let Some(thermal) = &mut details.thermal {
            thermal.fan_speed = thermal.fan_speed.map(|reported| match reported {
                // The speed of a fan that is off, or faster than intended, is unchanged.
                0 | 101.. => reported,
                _ => u32::try_from(self.share("fan", u64::from(reported), FAN)).unwrap_or(reported),
            });
            thermal.memory = self.drifted_temperature(thermal.memory, "memory temperature");
        }
        if let Some(traffic) = &mut details.pcie_throughput {
            let moved = |name: &str, reported: u32| {
                u32::try_from(self.scaled(name, u64::from(reported), TRAFFIC)).unwrap_or(reported)
            };
            traffic.sent = traffic.sent.map(|reported| moved("sent", reported));
            traffic.received = traffic.received.map(|reported| moved("received", reported));
        }
    }
}
