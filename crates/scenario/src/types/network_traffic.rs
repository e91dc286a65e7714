//! Traffic of a network: flows between its sites by a rule.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::flow::{allow_cc_parameters, cc_parameters};
use crate::by_kind;
use crate::keys::{Kinds, read_parts};
use crate::types::{Flow, FlowKeys, FlowKind, TcpFlowKeys};

/// `[network.traffic]`: flows between the sites, with the keys of a `[[flow]]` over TCP.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = allow_cc_parameters, transform = leave_out_ends)]
pub struct TrafficSection {
    /// Keys that all flows have. `from`, `via` and `between` are those of single flows; `count` flows run between each
    /// client and server.
    #[serde(flatten)]
    pub common: FlowKeys,
    /// Congestion control and application of all flows.
    #[serde(flatten)]
    pub tcp: TcpFlowKeys,
    /// Choice of clients and servers.
    #[serde(flatten, serialize_with = "by_kind::serialize")]
    pub kind: TrafficKind,
    /// Parameters of the congestion control.
    #[serde(flatten)]
    #[schemars(skip)]
    pub parameters: BTreeMap<String, Value>,
}

/// Leave the keys out of the schema that say where a single flow goes.
fn leave_out_ends(schema: &mut schemars::Schema) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    if let Some(keys) = properties {
        for key in ["between", "via"] {
            keys.remove(key);
        }
    }
}

impl TrafficSection {
    /// Return the flow between each client and server.
    pub(crate) fn flow(&self) -> Flow {
        Flow {
            common: self.common.clone(),
            kind: FlowKind::Tcp(self.tcp.clone()),
            parameters: self.parameters.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for TrafficSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (common, mut tcp) = (keys.part()?, keys.part()?);
            let kind = keys.kind()?;
            let parameters = cc_parameters(keys, &mut tcp)?;
            Ok(Self { common, tcp, kind, parameters })
        })
    }
}

/// Choice of the clients and servers of a network's traffic. All draws use the run's seed, and do not depend on the order
/// of the sites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind")]
pub enum TrafficKind {
    /// Random permutation: each site is the client of one other site, and the server of one other site. All permutations
    /// without a fixed point are equally likely.
    Permutation,
    /// Random pairing, as in Hypatia's experiments: pairs of sites, each the other's client and server; needs an even
    /// number of sites. All pairings are equally likely.
    Pairing,
    /// Flows between random clients and servers: the probability of two sites is proportional to the product of their
    /// populations.
    Gravity(GravityKeys),
    /// Numbers of flows from a file.
    Matrix(MatrixKeys),
    /// Flows between each site and the point of presence nearest to it, or without points of presence the nearest gateway.
    /// The site is the client; of transfers without an application it is the end that receives.
    Internet(InternetKeys),
}

impl Kinds for TrafficKind {
    const NOUN: &'static str = "a traffic";
}

/// Keys of `[network.traffic]` with kind = "gravity".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GravityKeys {
    /// Number of draws of a client and a server, each for `count` flows. Required.
    pub flows: u32,
}

/// Keys of `[network.traffic]` with kind = "internet".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct InternetKeys {
    /// Whether sites send what they transfer without an application, rather than receive it.
    pub upload: bool,
}

/// Keys of `[network.traffic]` with kind = "matrix".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixKeys {
    /// CSV file with the columns from, to and flows: the sites of the clients and of the servers, and the number of flows
    /// between them; looked up relative to the scenario file first. Required.
    pub file: String,
}
