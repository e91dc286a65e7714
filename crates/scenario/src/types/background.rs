//! `[network.background]`: traffic between the sites that has no packets of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use skyhop_units::{Bytes, Rate, Ratio};

use crate::by_kind;
use crate::keys::{Kinds, read_parts};

/// `[network.background]`: load of the links by traffic without packets, which goes over the routes in force. Packets of
/// flows share the links with it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BackgroundSection {
    /// Keys that all kinds have.
    #[serde(flatten)]
    pub common: BackgroundKeys,
    /// Choice of the demands.
    #[serde(flatten, serialize_with = "by_kind::serialize")]
    pub kind: BackgroundKind,
}

impl<'de> Deserialize<'de> for BackgroundSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| Ok(Self { common: keys.part()?, kind: keys.kind()? }))
    }
}

/// Keys of `[network.background]` with all kinds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BackgroundKeys {
    /// Largest share of a link's rate that the background takes, above 0 % and below 100 %. Demands that do not fit get
    /// max-min fair shares of their rates.
    pub most: Ratio,
    /// Size of the IP packets for which the background stands, 28 to 65535 bytes.
    pub packet: Bytes,
    /// Number of such packets that reach a link together, at random times, 1 to 1000; 0 for an even load.
    pub burst: u32,
}

impl Default for BackgroundKeys {
    fn default() -> Self {
        Self { most: Ratio::new(0.95).unwrap_or_default(), packet: Bytes::new(1500), burst: 1 }
    }
}

/// Choice of the demands of a network's background: a rate from one site to another one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind")]
pub enum BackgroundKind {
    /// Demands of a file, which may change over time.
    Matrix(DemandMatrixKeys),
    /// Demands between all sites, proportional to the product of the populations of both.
    Gravity(TotalRateKeys),
    /// Equal demands between all sites.
    Uniform(TotalRateKeys),
    /// Loads of the links in an earlier run of the same network: its packets, and its own background.
    Run(EarlierRunKeys),
}

impl Kinds for BackgroundKind {
    const NOUN: &'static str = "a background";
}

/// Keys of `[network.background]` with kind = "matrix".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DemandMatrixKeys {
    /// CSV file with the columns from, to and rate_bps: two sites, and the rate on the wire from one to the other; and
    /// optionally from_s and until_s, the times of the run at which the demand begins and ends. It is looked up relative
    /// to the scenario file first. Required.
    pub file: String,
}

/// Keys of `[network.background]` with kind = "run".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EarlierRunKeys {
    /// Run directory of a network with the same constellation, start, sites and gateways; its rates and its duration may
    /// differ. It is looked up relative to the scenario file first. Required.
    pub dir: String,
}

/// Keys of `[network.background]` with kind = "gravity" or "uniform".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TotalRateKeys {
    /// Sum of the rates of all demands, on the wire. Required.
    pub rate: Rate,
}
