//! Links of a network: rates, queues and losses of each kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_link::{Loss, QueueDiscipline};
use skyhop_units::{QueueLimit, Rate};

use crate::types::LinkKeys;

/// `[network.user_links]`: links between satellites and sites.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct UserLinks {
    /// Uplink of each site: one queue for its packets to all satellites.
    pub up: UserLinkKeys,
    /// Downlink: one queue for the packets of a satellite to all sites or to each, by `per`.
    pub down: UserLinkKeys,
    /// Whether the downlink of a satellite is shared by all sites ("satellite"), or each site has one of its own from
    /// each satellite ("site").
    pub per: DownlinkOf,
    /// Access profile from `skyhop list access`, or a file: the waits, holes, losses and rates that it adds to each site's
    /// links as measured, drawn for each site on its own. Needs per = "site". Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
}

/// Sharing of a satellite's downlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DownlinkOf {
    /// One downlink for all sites.
    #[default]
    Satellite,
    /// One downlink for each site.
    Site,
}

/// `[network.gateway_links]`: links between satellites and gateways.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct GatewayLinks {
    /// Uplink of each gateway: one queue for its packets to all satellites.
    pub up: GatewayLinkKeys,
    /// Downlink of each satellite: one queue for its packets to all gateways.
    pub down: GatewayLinkKeys,
}

/// Rate, queue and loss of the links of one kind in a network.
pub trait HopKeys {
    /// Return the keys as those of a link.
    fn link_keys(&self) -> LinkKeys;
}

/// Define the keys of a kind of links, which differ in the default rate alone.
macro_rules! hop_keys {
    ($(#[$meta:meta])* $name:ident, $mbps:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields, expecting = "a table")]
        pub struct $name {
            /// Rate on the wire; each IP packet counts 14 bytes more (Ethernet header). Above 0.
            pub rate: Rate,
            /// Queue capacity: "1000 packets", "1.5 MB", or a time at the rate ("20 ms"). Not in BDP, because a network
            /// has no single round trip.
            pub queue: QueueLimit,
            /// Queue discipline, in the forms of `link.qdisc`.
            pub qdisc: QueueDiscipline,
            /// Loss after the queue, in the forms of `link.loss`.
            pub loss: Loss,
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    rate: Rate::from_bits_per_second($mbps * 1_000_000),
                    queue: QueueLimit::Packets(1000),
                    qdisc: QueueDiscipline::default(),
                    loss: Loss::NONE,
                }
            }
        }

        impl HopKeys for $name {
            fn link_keys(&self) -> LinkKeys {
                let Self { rate, queue, qdisc, loss } = self.clone();
                LinkKeys {
                    rate: Some(rate),
                    queue: Some(queue),
                    qdisc: Some(qdisc),
                    loss: Some(loss),
                    ..LinkKeys::default()
                }
            }
        }
    };
}

hop_keys!(
    /// `[network.lasers]`: links between satellites, in each direction.
    LaserKeys,
    10_000
);
hop_keys!(
    /// `[network.user_links.up]` and `[network.user_links.down]`: links between satellites and sites.
    UserLinkKeys,
    1_000
);

hop_keys!(
    /// `[network.gateway_links.up]` and `[network.gateway_links.down]`: links between satellites and gateways.
    GatewayLinkKeys,
    10_000
);
