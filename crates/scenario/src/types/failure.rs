//! `[[failure]]`: parts of a network that fail.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use skyhop_units::{Duration, Quoted, Ratio};

/// `[[failure]]`: failure of one satellite, plane, site, gateway or laser of `[network]`, or of a share of all satellites. What is
/// in the queues and on the links of failed parts is lost, and routes avoid them from the next computation on. Each
/// entry has one of `satellite`, `plane`, `site`, `gateway`, `laser` and `satellites`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct FailureKeys {
    /// Satellite that fails: its number, or its name in the file of element sets.
    pub satellite: Option<SatelliteKey>,
    /// Number of a plane, counted from 0, all of whose satellites fail.
    pub plane: Option<u32>,
    /// Number of the shell of `plane`, counted from 0. Default: 0.
    pub shell: Option<u32>,
    /// Site that fails: it sends and receives nothing. Gateways and points of presence are sites, too.
    pub site: Option<String>,
    /// Gateway that fails: it sends and receives nothing.
    pub gateway: Option<String>,
    /// Laser that fails in both directions, as its two satellites by number or name.
    pub laser: Option<[SatelliteKey; 2]>,
    /// Share of all satellites that fails, drawn at random: "10 %". A larger share with the same seed has the satellites
    /// of the smaller one, and others.
    pub satellites: Option<Ratio>,
    /// Seed of the draw for `satellites`. Default: `run.seed`.
    pub seed: Option<u64>,
    /// Begin of the failure, counted from the run's start. Default: the run's start.
    pub from: Option<Duration>,
    /// End of the failure, after `from`. Default: the run's end.
    pub until: Option<Duration>,
}

/// Satellite by its number, or by its name in a file of element sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SatelliteKey {
    /// Number of the satellite, counted from 0.
    Number(u32),
    /// Name of the satellite.
    Name(String),
}

impl fmt::Display for SatelliteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => write!(f, "{}", Quoted(name)),
        }
    }
}

impl<'de> Deserialize<'de> for SatelliteKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Forms;

        impl Visitor<'_> for Forms {
            type Value = SatelliteKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number or the name of a satellite")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<SatelliteKey, E> {
                Ok(name
                    .parse()
                    .map_or_else(|_| SatelliteKey::Name(name.to_owned()), SatelliteKey::Number))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<SatelliteKey, E> {
                let wrong = || E::custom(format!("{number}; expected a number from 0 on"));
                u32::try_from(number).map(SatelliteKey::Number).map_err(|_| wrong())
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<SatelliteKey, E> {
                let wrong = || E::custom(format!("{number}; expected a smaller number"));
                u32::try_from(number).map(SatelliteKey::Number).map_err(|_| wrong())
            }
        }

        deserializer.deserialize_any(Forms)
    }
}

/// Part of a network, as an entry names it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FailingPart<'k> {
    Satellite(&'k SatelliteKey),
    Plane { shell: u32, plane: u32 },
    Site(&'k str),
    Gateway(&'k str),
    Laser(&'k [SatelliteKey; 2]),
    Share(Ratio),
}

impl FailureKeys {
    /// Part that the entry names. The error is the wrong key and what is wrong with it.
    pub(crate) fn part(&self) -> Result<FailingPart<'_>, (&'static str, String)> {
        let parts = [
            self.satellite.as_ref().map(FailingPart::Satellite),
            self.plane.map(|plane| FailingPart::Plane { shell: self.shell.unwrap_or(0), plane }),
            self.site.as_deref().map(FailingPart::Site),
            self.gateway.as_deref().map(FailingPart::Gateway),
            self.laser.as_ref().map(FailingPart::Laser),
            self.satellites.map(FailingPart::Share),
        ];
        let mut given = parts.into_iter().flatten();
        let (Some(part), None) = (given.next(), given.next()) else {
            let what = "expected one of satellite, plane, site, gateway, laser and satellites";
            return Err(("", what.to_owned()));
        };
        if self.shell.is_some() && self.plane.is_none() {
            return Err(("shell", "is for `plane` alone; remove it".to_owned()));
        }
        if self.seed.is_some() && self.satellites.is_none() {
            return Err(("seed", "is for a share of the `satellites` alone; remove it".to_owned()));
        }
        Ok(part)
    }
}
