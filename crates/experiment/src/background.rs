//! Plan of a network's background: traffic without packets.

use serde::{Deserialize, Serialize};
use skyhop_path::network::Demand;
use skyhop_units::{Bytes, Ratio};

/// Background of a network: demands between its sites, which load its links.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackgroundPlan {
    /// Demands in the order of the scenario.
    pub demands: Vec<Demand>,
    /// Largest share of a link's rate that the demands take.
    pub most: Ratio,
    /// Wire bytes of each packet for which the background stands.
    pub packet: Bytes,
    /// Number of such packets that reach a link together; 0 for an even load.
    pub burst: u32,
}
