//! The sensors of a card (hwmon).

use crate::Tree;
use crate::card::{Card, numbered};
use gpu_core::{Absent, Celsius, Milliwatts, Reading, plausible};
use std::collections::BTreeMap;

/// The quantity of a sensor, with the unit of its files (`Documentation/hwmon/sysfs-interface.rst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Millidegrees Celsius.
    Temperature,
    /// Microwatts.
    Power,
    /// Microjoules.
    Energy,
    /// Revolutions per minute. 0 is real: many fans stop when the card is idle.
    Fan,
    /// Duty cycle of a fan: 0 to 255.
    Pwm,
    /// Millivolts.
    Voltage,
    /// Hertz.
    Frequency,
}

/// The threshold of a temperature that has none: 0 K.
const NO_THRESHOLD: i64 = -273_150;

/// A sensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sensor {
    /// What it measures.
    pub quantity: Quantity,
    /// N of `tempN_input`. It differs between cards for the same quantity, so compare labels.
    pub channel: u8,
    /// What it belongs to, such as `junction`; radeon and i915 have no labels.
    pub label: Option<String>,
    /// The values as read, by the end of the file's name, such as `input`; that of `pwmN` is
    /// `input` too.
    pub values: BTreeMap<String, Reading<i64>>,
}

impl Sensor {
    /// Returns a value in the unit of its [`Quantity`].
    ///
    /// # Errors
    /// `NotSupported` if it has no such file, or the reason why the file has no number.
    pub fn value(&self, attribute: &str) -> Reading<i64> {
        self.values.get(attribute).copied().unwrap_or(Err(Absent::NotSupported))
    }

    /// Returns a temperature or threshold, rounded.
    ///
    /// # Errors
    /// As [`value`](Sensor::value), `NotSupported` for a threshold of 0 K, and `Implausible`.
    pub fn celsius(&self, attribute: &str) -> Reading<Celsius> {
        match self.value(attribute)? {
            NO_THRESHOLD => Err(Absent::NotSupported),
            value => plausible::celsius(value.saturating_add(500).div_euclid(1_000)),
        }
    }

    /// Returns a power or limit.
    ///
    /// # Errors
    /// As [`value`](Sensor::value), and `Implausible`.
    pub fn milliwatts(&self, attribute: &str) -> Reading<Milliwatts> {
        let microwatts = u64::try_from(self.value(attribute)?).map_err(|_| Absent::Implausible)?;
        plausible::milliwatts(microwatts / 1_000)
    }
}

/// The power draw of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerDraw {
    /// The power. That of an APU includes the CPU.
    pub power: Milliwatts,
    /// Whether it is an average, over a time that the driver does not state, or the present value.
    pub is_average: bool,
}

/// A counter of energy: the power draw is the difference of two reads by the time between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnergyCounter {
    /// Its channel. Only reads of the same channel can be compared.
    pub channel: u8,
    /// Microjoules so far.
    pub microjoules: u64,
}

/// The sensors of a card, by quantity and channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sensors(pub Vec<Sensor>);

impl Sensors {
    /// Returns the temperature of the GPU: the edge of an AMD chip (the junction of MI300, which has
    /// no edge sensor), the package of Intel's, or the only sensor of old cards.
    ///
    /// # Errors
    /// As [`Sensor::celsius`].
    pub fn gpu_temperature(&self) -> Reading<Celsius> {
        self.labelled(Quantity::Temperature, &["edge", "pkg", "junction", ""])?.celsius("input")
    }

    /// Returns the temperature of the memory.
    ///
    /// # Errors
    /// As [`Sensor::celsius`]; `NotSupported` at 0 °C, which boards without the sensor report.
    pub fn memory_temperature(&self) -> Reading<Celsius> {
        let sensor = self.labelled(Quantity::Temperature, &["mem", "vram"])?;
        sensor.celsius("input").and_then(|value| nonzero(value, value.0 != 0))
    }

    /// Returns the power draw of an AMD card: the average if it has one, as most have.
    ///
    /// # Errors
    /// As [`Sensor::milliwatts`]; `NotSupported` on Intel's cards, which have
    /// [`energy`](Sensors::energy).
    pub fn power_draw(&self) -> Reading<PowerDraw> {
        let sensor = self.of(Quantity::Power).next().ok_or(Absent::NotSupported)?;
        let draw = |attribute, is_average| {
            sensor.milliwatts(attribute).map(|power| PowerDraw { power, is_average })
        };
        first([draw("average", true), draw("input", false)].into_iter())
    }

    /// Returns the power limit: `cap` of amdgpu; of Intel's the sustained limit (`max`, PL1), else
    /// that of peaks (`cap`, PL2), of the card or else the package. A limit of 0 is off, and `crit`
    /// is no limit.
    ///
    /// # Errors
    /// As [`Sensor::milliwatts`].
    pub fn power_limit(&self) -> Reading<Milliwatts> {
        let limits = self.of(Quantity::Power).flat_map(|sensor| {
            ["max", "cap"].map(|attribute| {
                sensor.milliwatts(attribute).and_then(|limit| nonzero(limit, limit.0 > 0))
            })
        });
        first(limits)
    }

    /// Returns the counter of energy of an Intel card: that of the card, or of the package where the
    /// former does not count (B580 with Linux 6.16).
    ///
    /// # Errors
    /// As [`Sensor::value`]; `Implausible` below 0.
    pub fn energy(&self) -> Reading<EnergyCounter> {
        let counters = self.of(Quantity::Energy).map(|sensor| {
            let microjoules =
                u64::try_from(sensor.value("input")?).map_err(|_| Absent::Implausible)?;
            nonzero(EnergyCounter { channel: sensor.channel, microjoules }, microjoules > 0)
        });
        first(counters)
    }

    /// Returns the sensor with the first of these labels; `""` is one without a label.
    ///
    /// # Errors
    /// `NotSupported` if there is none.
    pub fn labelled(&self, quantity: Quantity, labels: &[&str]) -> Reading<&Sensor> {
        let labelled = |label: &&str| {
            self.of(quantity).find(|sensor| sensor.label.as_deref().unwrap_or_default() == *label)
        };
        labels.iter().find_map(labelled).ok_or(Absent::NotSupported)
    }

    /// Returns the sensors of a quantity.
    fn of(&self, quantity: Quantity) -> impl Iterator<Item = &Sensor> {
        self.0.iter().filter(move |sensor| sensor.quantity == quantity)
    }
}

/// Returns a value unless 0 stands for none.
fn nonzero<T>(value: T, is_nonzero: bool) -> Reading<T> {
    if is_nonzero { Ok(value) } else { Err(Absent::NotSupported) }
}

/// Returns the first value, or else the first reason why there is none.
fn first<T: Copy>(readings: impl Iterator<Item = Reading<T>>) -> Reading<T> {
    let readings: Vec<_> = readings.collect();
    let known = readings.iter().find(|reading| reading.is_ok()).or(readings.first());
    known.copied().unwrap_or(Err(Absent::NotSupported))
}

/// Reads the sensors of a card.
///
/// # Errors
/// `NotSupported` if it has none, as integrated GPUs of Intel; `Asleep`, and as [`Tree::names`].
pub fn sensors(tree: &dyn Tree, card: &Card) -> Reading<Sensors> {
    card.awake(tree)?;
    let chips = numbered(tree, &format!("{}/hwmon", card.dir), "hwmon")?;
    let mut dirs = chips.iter().map(|chip| format!("{}/hwmon/hwmon{chip}", card.dir));
    // i915 has others with the energy of a part of the chip.
    let is_main =
        |dir: &String| tree.text(&format!("{dir}/name")).as_deref() == Ok(card.driver.name());
    let dir = dirs.find(is_main).ok_or(Absent::NotSupported)?;

    let mut sensors = BTreeMap::new();
    for file in tree.names(&dir)? {
        let Some((quantity, channel, attribute)) = parts(&file) else { continue };
        let new = || Sensor { quantity, channel, label: None, values: BTreeMap::new() };
        let sensor: &mut Sensor = sensors.entry((quantity, channel)).or_insert_with(new);
        let path = format!("{dir}/{file}");
        match attribute {
            "label" => sensor.label = tree.text(&path).ok(),
            _ => _ = sensor.values.insert(attribute.to_owned(), tree.number(&path)),
        }
    }
    Ok(Sensors(sensors.into_values().collect()))
}

/// Splits the name of a file, such as `temp2_crit_hyst`; `None` if it is not read: other files have
/// settings and the curves of fans.
fn parts(file: &str) -> Option<(Quantity, u8, &str)> {
    let (start, attribute) = file.split_once('_').unwrap_or((file, ""));
    let digits = start.trim_start_matches(|c: char| !c.is_ascii_digit());
    let quantity = match start.strip_suffix(digits)? {
        "temp" => Quantity::Temperature,
        "power" => Quantity::Power,
        "energy" => Quantity::Energy,
        "fan" => Quantity::Fan,
        "pwm" => Quantity::Pwm,
        "in" => Quantity::Voltage,
        "freq" => Quantity::Frequency,
        _ => return None,
    };
    let attribute = match attribute {
        "" if quantity == Quantity::Pwm => "input",
        "label" | "input" | "average" | "cap" | "cap_min" | "cap_max" | "cap_default" | "min"
        | "max" | "rated_max" | "crit" | "crit_hyst" | "emergency" | "target" | "enable" => {
            attribute
        }
        _ => return None,
    };
    Some((quantity, digits.parse().ok()?, attribute))
}
