//! Plan of a network's background: traffic without packets.

use serde::{Deserialize, Serialize};
use skyhop_path::network::{Demand, LegBits};
use skyhop_units::{Bytes, Ratio};

/// Background of a network: loads of its links by demands between its sites, or as an earlier run recorded them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackgroundPlan {
    /// Demands in the order of the scenario.
    pub demands: Vec<Demand>,
    /// Loads of an earlier run, in place of demands; empty for demands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<LegBits>,
    /// Largest share of a link's rate that the demands take.
    pub most: Ratio,
    /// Wire bytes of each packet for which the background stands.
    pub packet: Bytes,
    /// Number of such packets that reach a link together; 0 for an even load.
    pub burst: u32,
}
