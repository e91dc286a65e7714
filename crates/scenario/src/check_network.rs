//! Checks of `[network]`, and of the sections that a network does not have.

use skyhop_app::{App, Predicted};
use skyhop_model::Compat;
use skyhop_path::MOST_STEPS;
use skyhop_path::routing::MOST_WAYS;
use skyhop_units::{QueueLimit, Rate};

use crate::ScenarioError;
use crate::catalogue::SiteRow;
use crate::named::NamedScenario;
use crate::types::{
    DownlinkOf, Flow, FlowKeys, FlowKind, GridKeys, HopKeys, LinkSection, NetworkSection, Routing,
    SignalSource, SiteKeys, Sites, TrafficSection,
};

/// Largest number of sites of a network.
const MOST_SITES: usize = 10_000;

/// Smallest height of the cells of a grid: the Earth has a million of them.
const SMALLEST_CELL_DEG: f64 = 0.2;

/// Beginning of `sites` that ask for the most populous cities.
const TOP: &str = "top-";

impl NamedScenario {
    /// Check a scenario with `[network]` as far as its keys tell; files and places are read when it is planned.
    pub(crate) fn check_network(&self, network: &NetworkSection) -> Result<(), ScenarioError> {
        self.check_no_path_keys()?;
        let least = if network.gateways.is_some() { 1 } else { 2 };
        self.check_sites("network.sites", &network.sites, least)?;
        self.check_ground(network)?;
        self.check_failures(&self.scenario.failure)?;
        if network.compat == Compat::Leoem {
            let what = "is \"leoem\", which is for paths; expected \"none\" or \"hypatia\"";
            return Err(self.key_error("network.compat", what));
        }
        if let Some(every) = network.interval.0 {
            if every.as_nanos() == 0 {
                let what = "is 0 s; expected a time above zero, or \"never\"";
                return Err(self.key_error("network.interval", what));
            }
            let steps = self.scenario.run.duration.as_nanos().div_ceil(every.as_nanos());
            let remedy = ("network.interval", "steps", "lengthen it, shorten run.duration");
            self.within(remedy, steps, MOST_STEPS)?;
        }
        self.check_routing(network)?;
        for (key, keys) in hops(network) {
            self.check_hop(&format!("network.{key}"), keys)?;
        }
        for (index, flow) in self.scenario.flow.iter().enumerate() {
            self.check_network_flow(flow, &format!("flow.{index}"))?;
        }
        if let Some(background) = &network.background {
            self.check_background(background)?;
        }
        match &network.traffic {
            Some(traffic) => self.check_traffic(traffic),
            None => Ok(()),
        }
    }

    /// Check that routes are computed at the ends of snapshots, and the number of ways.
    fn check_routing(&self, network: &NetworkSection) -> Result<(), ScenarioError> {
        let keys = match &network.routing {
            Routing::Snapshot(keys) => keys,
            Routing::EqualCost(keys) if !(1..=MOST_WAYS).contains(&keys.ways) => {
                let what = format!("is {}; expected 1 to {MOST_WAYS}", keys.ways);
                return Err(self.key_error("network.routing.ways", what));
            }
            _ => return Ok(()),
        };
        let key = "network.routing.every";
        match network.interval.0 {
            None => {
                let what =
                    "has no effect with interval = \"never\"; expected routing = \"shortest\"";
                Err(self.key_error(key, what))
            }
            Some(interval) if keys.every < interval => {
                let what =
                    format!("is {}; expected at least the interval of {interval}", keys.every);
                Err(self.key_error(key, what))
            }
            Some(_) => Ok(()),
        }
    }

    /// Check that the scenario has no section about a single path or link.
    fn check_no_path_keys(&self) -> Result<(), ScenarioError> {
        let scenario = &self.scenario;
        let refused = [
            (
                "link",
                scenario.link != LinkSection::default(),
                "network.lasers and network.user_links",
            ),
            ("links", !scenario.links.is_empty(), "network.lasers and network.user_links"),
            ("change", !scenario.change.is_empty(), "a scenario with [path]"),
            (
                "signal.source",
                scenario.signal.source == SignalSource::Forecast,
                "\"path\", \"schedule\" or \"blind\"",
            ),
        ];
        match refused.into_iter().find(|(_, is_given, _)| *is_given) {
            Some((key, _, instead)) => {
                let what = format!("does not go with [network]; expected {instead}");
                Err(self.key_error(key, what))
            }
            None => Ok(()),
        }
    }

    /// Check the keys of gateways, points of presence and the links of single sites.
    fn check_ground(&self, network: &NetworkSection) -> Result<(), ScenarioError> {
        for (key, list) in
            [("network.gateways", &network.gateways), ("network.pops", &network.pops)]
        {
            list.as_ref().map_or(Ok(()), |list| self.check_sites(key, list, 1))?;
        }
        if network.pops.is_some() && network.gateways.is_none() {
            let what = "has no effect without gateways, over which packets get there; add network.gateways";
            return Err(self.key_error("network.pops", what));
        }
        if !(1.0..=10.0).contains(&network.fibre_stretch) {
            let what = format!("is {}; expected 1 to 10", network.fibre_stretch);
            return Err(self.key_error("network.fibre_stretch", what));
        }
        let own = match &network.sites {
            Sites::Listed(listed) => listed.as_slice(),
            Sites::Named(_) | Sites::Grid(_) => &[],
        };
        let has_access = |site: &SiteKeys| match site {
            SiteKeys::Position(keys) => keys.access.is_some(),
            SiteKeys::Place(_) => false,
        };
        let of_sites = (0..).zip(own).find(|(_, site)| has_access(site));
        let of_all = network.user_links.access.is_some();
        let key = match of_sites {
            _ if of_all => "network.user_links.access".to_owned(),
            Some((index, _)) => format!("network.sites.{index}.access"),
            None => return Ok(()),
        };
        match network.user_links.per {
            DownlinkOf::Site => Ok(()),
            DownlinkOf::Satellite => {
                let what =
                    "is about the link of a single site; add network.user_links.per = \"site\"";
                Err(self.key_error(key, what))
            }
        }
    }

    /// Check the number of sites that a key gives, and their positions.
    fn check_sites(&self, key: &str, sites: &Sites, least: usize) -> Result<(), ScenarioError> {
        match sites {
            Sites::Named(name) => match name.strip_prefix(TOP) {
                Some(_) if top_cities(name).is_none() => {
                    let what =
                        format!("is \"{name}\"; expected a number of cities such as \"top-100\"");
                    Err(self.key_error(key, what))
                }
                Some(_) => {
                    self.check_number_of_sites(key, top_cities(name).unwrap_or_default(), least)
                }
                None => Ok(()),
            },
            Sites::Grid(grid) => self.check_grid(key, grid),
            Sites::Listed(listed) => {
                self.check_number_of_sites(key, listed.len(), least)?;
                let positions = (0..).zip(listed).filter_map(|(index, site)| match site {
                    SiteKeys::Position(keys) => Some((index, SiteRow::from(keys.clone()))),
                    SiteKeys::Place(_) => None,
                });
                let check = |(index, row): (u32, SiteRow)| {
                    let wrong = |what| self.key_error(format!("{key}.{index}"), what);
                    row.check().map_err(wrong)
                };
                positions.into_iter().try_for_each(check)
            }
        }
    }

    fn check_grid(&self, key: &str, keys: &GridKeys) -> Result<(), ScenarioError> {
        let [south, north] = keys.latitudes;
        if !(-90.0..=90.0).contains(&south) || !(-90.0..=90.0).contains(&north) || south >= north {
            let what = format!(
                "is [{south}, {north}]; expected two latitudes from -90 to 90, the southern one first"
            );
            return Err(self.key_error(format!("{key}.latitudes"), what));
        }
        let height = keys.grid.degrees();
        if !(SMALLEST_CELL_DEG..=north - south).contains(&height) {
            let what = format!(
                "is {}; expected {SMALLEST_CELL_DEG} deg to the {} deg between the `latitudes`",
                keys.grid,
                north - south
            );
            return Err(self.key_error(format!("{key}.grid"), what));
        }
        Ok(())
    }

    /// Check the number of sites that a key gives.
    pub(crate) fn check_number_of_sites(
        &self,
        key: &str,
        count: usize,
        least: usize,
    ) -> Result<(), ScenarioError> {
        if (least..=MOST_SITES).contains(&count) {
            return Ok(());
        }
        let what = format!("has {count}; expected {least} to {MOST_SITES} sites");
        Err(self.key_error(key, what))
    }

    fn check_hop(&self, key: &str, keys: &dyn HopKeys) -> Result<(), ScenarioError> {
        let values = keys.link_keys().values();
        if values.rate == Rate::ZERO {
            let what = "is 0; expected a rate such as \"1 Gbit/s\"";
            return Err(self.key_error(format!("{key}.rate"), what));
        }
        if let QueueLimit::Bdp(_) = values.queue {
            let what = format!(
                "is \"{}\", but a network has no single round trip; expected packets, bytes, or a time such as \"20 ms\"",
                values.queue
            );
            return Err(self.key_error(format!("{key}.queue"), what));
        }
        Ok(())
    }

    /// Check that a `[[flow]]` has two sites, and no keys of a flow over links.
    fn check_network_flow(&self, flow: &Flow, key: &str) -> Result<(), ScenarioError> {
        match &flow.common.between {
            None => {
                let what = "is missing: the sites of the client and of the server, such as [\"London\", \"New York\"]";
                return Err(self.key_error(format!("{key}.between"), what));
            }
            Some([client, server]) if client == server => {
                let what = format!("is \"{client}\" twice; expected two sites");
                return Err(self.key_error(format!("{key}.between"), what));
            }
            Some(_) => {}
        }
        self.check_over_network(flow, key)
    }

    fn check_over_network(&self, flow: &Flow, key: &str) -> Result<(), ScenarioError> {
        let default = FlowKeys::default();
        let (from, via) = (flow.common.from, &flow.common.via);
        for (name, is_given) in [("from", from != default.from), ("via", *via != default.via)] {
            if is_given {
                let what = "does not go with [network]; expected `between`, with the client first";
                return Err(self.key_error(format!("{key}.{name}"), what));
            }
        }
        match &flow.kind {
            FlowKind::Tcp(tcp) => match &tcp.app {
                App::Dash(dash) if !matches!(dash.predicted, Predicted::Rates(_)) => {
                    let what = "needs the rate of a single path, which a network does not have; expected a list of rates";
                    Err(self.key_error(format!("{key}.app.predicted"), what))
                }
                _ => Ok(()),
            },
            FlowKind::Probe(_) | FlowKind::Call(_) => Ok(()),
        }
    }

    fn check_traffic(&self, traffic: &TrafficSection) -> Result<(), ScenarioError> {
        let (flow, key) = (traffic.flow(), "network.traffic");
        if flow.common.between.is_some() {
            let what = "is for a [[flow]]; `kind` chooses the sites of traffic";
            return Err(self.key_error(format!("{key}.between"), what));
        }
        self.check_over_network(&flow, key)?;
        self.check_flow(&flow, key)
    }
}

/// Keys of all kinds of links of a network, each with its key in `[network]`.
pub(crate) fn hops(network: &NetworkSection) -> [(&'static str, &dyn HopKeys); 5] {
    [
        ("lasers", &network.lasers),
        ("user_links.down", &network.user_links.down),
        ("user_links.up", &network.user_links.up),
        ("gateway_links.down", &network.gateway_links.down),
        ("gateway_links.up", &network.gateway_links.up),
    ]
}

/// Number of cities that the text "top-N" asks for; `None` for other texts.
pub(crate) fn top_cities(text: &str) -> Option<usize> {
    text.strip_prefix(TOP)?.parse().ok()
}
