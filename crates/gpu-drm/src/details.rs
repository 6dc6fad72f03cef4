//! The values of a card as samples and details.

use crate::{
    Card, CardDriver, Link, Metrics, Quantity, Sensor, Sensors, Tree, Values, current_clock, gts,
    health, levels, sensors, values,
};
use gpu_core::{
    Absent, Activity, Clocks, DeviceDetails, DeviceSample, Group, Groups, MemoryKind, MemorySource,
    Milliwatts, Pcie, Power, PowerReadings, Product, Reading, Thermal, ThrottleReasons, plausible,
};

/// Returns the ID of an AMD chip.
pub(crate) fn unique_id(tree: &dyn Tree, card: &Card) -> Reading<u64> {
    let id = tree.text(&format!("{}/unique_id", card.dir))?;
    u64::from_str_radix(&id, 16).map_err(|_| Absent::Implausible)
}

/// Returns where the memory of a card is. That of an integrated one is the host's; amdgpu reports
/// the part that the BIOS sets aside, and Intel's drivers report none.
fn source(card: &Card, is_integrated: bool) -> MemorySource {
    MemorySource::of(match (card.driver, is_integrated) {
        (_, false) => MemoryKind::Dedicated,
        (CardDriver::Amdgpu | CardDriver::Radeon, true) => MemoryKind::CarveOut,
        (CardDriver::I915 | CardDriver::Xe, true) => MemoryKind::Host,
    })
}

/// Reads the state of a card.
pub(crate) fn sample(tree: &dyn Tree, card: &Card, is_integrated: bool) -> DeviceSample {
    let values = values(tree, card);
    let sensors = sensors(tree, card);
    let of = |read: fn(&Sensors) -> _| sensors.as_ref().map_err(|reason| *reason).and_then(read);
    let mut memory = values.vram;
    if let Err(asleep) = card.awake(tree) {
        memory.used = memory.used.or(Err(asleep));
    }
    DeviceSample {
        memory,
        source: source(card, is_integrated),
        utilization: values.busy,
        temperature: sensors.as_ref().map_err(|r| *r).and_then(Sensors::gpu_temperature),
        power_draw: sensors.as_ref().map_err(|r| *r).and_then(|s| Ok(s.power_draw()?.power)),
        power_limit: of(Sensors::power_limit),
    }
}

/// Reads details of a card. A group that neither driver has is `NotSupported` throughout.
pub(crate) fn details(tree: &dyn Tree, card: &Card, groups: Groups) -> DeviceDetails {
    let values = values(tree, card);
    let sensors = sensors(tree, card);
    let known = |group: Group| groups.has(group);
    DeviceDetails {
        product: known(Group::Product).then(|| Product {
            serial: values.serial.clone(),
            vbios: values.vbios.clone(),
            numa_node: values.numa_node,
            ..Product::default()
        }),
        activity: known(Group::Activity).then(|| Activity {
            memory: values.memory_busy,
            throttle: throttle(tree, card),
            ..Activity::default()
        }),
        clocks: known(Group::Clocks).then(|| clocks(tree, card, &sensors)),
        power: known(Group::Power).then(|| power(&sensors)),
        power_readings: known(Group::PowerReadings).then(|| power_readings(&sensors)),
        thermal: known(Group::Thermal).then(|| thermal(&sensors)),
        pcie: known(Group::Pcie).then(|| pcie(tree, card, &values)),
        memory_health: known(Group::MemoryHealth).then(|| health::memory(tree, card)),
        memory_errors: known(Group::MemoryErrors).then(|| Box::new(health::errors(tree, card))),
        ..DeviceDetails::not_supported(groups)
    }
}

fn clocks(tree: &dyn Tree, card: &Card, sensors: &Reading<Sensors>) -> Clocks {
    if matches!(card.driver, CardDriver::I915 | CardDriver::Xe) {
        let gts = gts(tree, card);
        // The first GT has the engines that render and compute.
        let gt = gts
            .as_ref()
            .map_err(|reason| *reason)
            .and_then(|gts| gts.first().ok_or(Absent::NotSupported));
        let graphics = gt.and_then(|gt| gt.mhz("act"));
        let graphics_max = gt.and_then(|gt| gt.mhz("rp0").or_else(|_| gt.mhz("max")));
        return Clocks {
            graphics,
            sm: graphics,
            sm_max: graphics_max,
            graphics_max,
            ..Clocks::default()
        };
    }
    let none = Sensors::default();
    let now = |clock| current_clock(tree, card, sensors.as_ref().unwrap_or(&none), clock);
    let max = |clock| {
        let clocks = levels(tree, card, clock)?.into_iter().filter_map(|level| level.mhz.ok());
        // A chip whose clock is off lists it as 0.
        clocks.filter(|mhz| *mhz > 0).max().ok_or(Absent::NotSupported)
    };
    let (graphics, graphics_max) = (now("sclk"), max("sclk"));
    Clocks {
        graphics,
        // The shaders have no clock of their own.
        sm: graphics,
        sm_max: graphics_max,
        graphics_max,
        memory: now("mclk"),
        video: now("vclk"),
        memory_max: max("mclk"),
        video_max: max("vclk"),
    }
}

fn power(sensors: &Reading<Sensors>) -> Power {
    let of = |attribute| -> Reading<Milliwatts> {
        sensors.as_ref().map_err(|reason| *reason)?.limit(attribute)
    };
    let energy = sensors.as_ref().map_err(|reason| *reason).and_then(Sensors::energy);
    Power {
        limit: sensors.as_ref().map_err(|reason| *reason).and_then(Sensors::power_limit),
        default_limit: of("cap_default"),
        limit_min: of("cap_min"),
        limit_max: of("cap_max"),
        energy: energy.map(|counter| counter.microjoules / 1_000),
    }
}

fn power_readings(sensors: &Reading<Sensors>) -> PowerReadings {
    let draw = sensors.as_ref().map_err(|reason| *reason).and_then(Sensors::power_draw);
    let of = |is_average| match draw {
        Ok(draw) if draw.is_average == is_average => Ok(draw.power),
        Ok(_) => Err(Absent::NotSupported),
        Err(reason) => Err(reason),
    };
    PowerReadings { instant: of(false), average: of(true), ..PowerReadings::default() }
}

fn thermal(sensors: &Reading<Sensors>) -> Thermal {
    let Ok(sensors) = sensors else {
        return sensors
            .as_ref()
            .map_or_else(|reason| Thermal::absent(*reason), |_| Thermal::default());
    };
    let chip = sensors.chip();
    let threshold = |attribute| chip.and_then(|sensor| sensor.celsius(attribute));
    Thermal {
        fan_speed: sensors.fan_percent(),
        memory: sensors.memory_temperature(),
        slowdown: threshold("crit"),
        shutdown: threshold("emergency"),
        ..Thermal::default()
    }
}

/// Returns what reduces the clocks: of xe and i915 the words of the driver, of amdgpu the bits that
/// are the same for all chips (`SMU_THROTTLER_*` in `amdgpu_smu.h`). Limits of power and current are
/// normal at full load.
fn throttle(tree: &dyn Tree, card: &Card) -> Reading<ThrottleReasons> {
    use ThrottleReasons as Reasons;
    card.awake(tree)?;
    let with = |set, reason: Option<Reasons>| reason.map_or(set, |reason| set | reason);
    if matches!(card.driver, CardDriver::I915 | CardDriver::Xe) {
        let gts = gts(tree, card)?;
        let words: Vec<String> =
            gts.into_iter().map(|gt| gt.throttle).collect::<Reading<Vec<_>>>()?.concat();
        return Ok(words
            .iter()
            .map(|word| match word.as_str() {
                "prochot" => Some(Reasons::HARDWARE_SLOWDOWN),
                "ratl" => Some(Reasons::HARDWARE_THERMAL),
                word if word.contains("therm") => Some(Reasons::HARDWARE_THERMAL),
                word if word.starts_with("pl") => Some(Reasons::SOFTWARE_POWER_CAP),
                _ => None,
            })
            .fold(Reasons::default(), with));
    }
    /// The table of the largest chip has 3,872 bytes.
    const TABLE: usize = 4_096;
    let bits = Metrics::parse(&tree.read(&format!("{}/gpu_metrics", card.dir), TABLE)?)?.throttle?;
    let kinds = [
        (0x00ff_ffff, Reasons::SOFTWARE_POWER_CAP),
        (0x3fff << 32, Reasons::HARDWARE_THERMAL),
        // PROCHOT: another part of the machine asks for it.
        (0b11 << 46, Reasons::HARDWARE_SLOWDOWN),
    ];
    let reasons = kinds.into_iter().map(|(mask, reason)| (bits & mask != 0).then_some(reason));
    Ok(reasons.fold(Reasons::default(), with))
}

fn pcie(tree: &dyn Tree, card: &Card, values: &Values) -> Pcie {
    // What the bridge above the card allows: that of the slot, or one on the card itself.
    let above = values::fastest_link(tree, &format!("{}/..", card.dir));
    let both = |of: fn(Link) -> Reading<u32>| Ok(of(values.max_link?)?.min(of(above?)?));
    let generation = |link: Reading<Link>| link.and_then(|link| link.generation());
    let lanes = |link: Reading<Link>| link.map(|link| link.lanes);
    let id = |ids: Reading<(u16, u16)>| {
        ids.map(|(vendor, device)| (u32::from(device) << 16) | u32::from(vendor))
    };
    Pcie {
        generation: generation(values.link),
        generation_max: both(Link::generation),
        device_generation_max: generation(values.max_link),
        width: lanes(values.link),
        width_max: both(|link| Ok(link.lanes)),
        replays: values.replays.and_then(|count| count.try_into().map_err(|_| Absent::Implausible)),
        device_id: id(card.ids.device),
        subsystem_id: id(card.ids.subsystem),
        base_class: card.ids.class.map(|class| class >> 16),
        sub_class: card.ids.class.map(|class| (class >> 8) & 0xff),
        ..Pcie::default()
    }
}

impl Card {
    /// Returns whether the GPU is part of the processor and uses memory of the host.
    ///
    /// Of AMD's chips, only APUs have tables of metrics from version 2 on (`kgd_pp_interface.h`).
    /// Intel's integrated GPUs are on the first bus.
    pub(crate) fn is_integrated(&self, tree: &dyn Tree) -> bool {
        match self.driver {
            CardDriver::I915 | CardDriver::Xe => self.bus.bus == 0,
            CardDriver::Amdgpu | CardDriver::Radeon => {
                let read = || tree.read(&format!("{}/gpu_metrics", self.dir), 4);
                matches!(
                    self.awake(tree).and_then(|()| read()).as_deref(),
                    Ok([_, _, 2..=u8::MAX, _])
                )
            }
        }
    }

    /// Returns the paths of its nodes, that of the render node first.
    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        let render = self.render.map(|number| format!("/dev/dri/renderD{number}"));
        render.into_iter().chain(self.card.map(|number| format!("/dev/dri/card{number}")))
    }
}

impl Link {
    /// Returns the generation of PCI Express with this speed.
    fn generation(self) -> Reading<u32> {
        const SPEEDS: [u32; 7] = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000, 128_000];
        let at = SPEEDS.iter().position(|speed| *speed == self.megatransfers);
        at.and_then(|at| u32::try_from(at + 1).ok()).ok_or(Absent::Implausible)
    }
}

impl Sensors {
    /// Returns a bound of the power limit: `cap_min`, `cap_max` or `cap_default`.
    fn limit(&self, attribute: &str) -> Reading<Milliwatts> {
        let sensor = self.0.iter().find(|sensor| sensor.quantity == Quantity::Power);
        let limit = sensor.ok_or(Absent::NotSupported)?.milliwatts(attribute)?;
        if limit.0 > 0 { Ok(limit) } else { Err(Absent::NotSupported) }
    }

    /// Returns the sensor whose thresholds are those of the chip.
    fn chip(&self) -> Reading<&Sensor> {
        self.labelled(Quantity::Temperature, &["edge", "pkg", "junction", ""])
    }

    /// Returns the duty cycle of the first fan, in percent.
    fn fan_percent(&self) -> Reading<u32> {
        let fan = self.0.iter().find(|sensor| sensor.quantity == Quantity::Pwm);
        let duty = u8::try_from(fan.ok_or(Absent::NotSupported)?.value("input")?);
        let duty = duty.map_err(|_| Absent::Implausible)?;
        plausible::fan_percent((u32::from(duty) * 100).div_ceil(255))
    }
}
