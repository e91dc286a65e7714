//! Congestion controls of a flow's connections.

use std::sync::Arc;

use skyhop_app::Side;
use skyhop_cc::{CcError, Controller, Module, Registry, Setup};
use skyhop_engine::Unsupported;
use skyhop_experiment::seed_for;
use skyhop_model::Profile;

use crate::session::ExternalPolicy;

/// Factory of congestion controls: one for each end of each of a flow's connections.
pub(crate) struct Controllers {
    id: u32,
    cc: String,
    parameters: Vec<(String, String)>,
    /// Ticks per second of the host's clock (HZ).
    hz: u32,
    seed: u64,
    /// Congestion control at the client of the first connection, created early so that wrong parameters are
    /// found before the run.
    first: Option<Controller>,
    external: Option<Arc<dyn ExternalPolicy>>,
}

impl Controllers {
    /// Create the factory for the flow with this id; `seed` is the seed of the congestion control at the client
    /// of its first connection.
    ///
    /// # Errors
    /// No congestion control has this name, or it rejects these parameters.
    pub(crate) fn new(
        id: u32,
        cc: &str,
        parameters: Vec<(String, String)>,
        (profile, hz): (Profile, u32),
        seed: u64,
        external: Option<Arc<dyn ExternalPolicy>>,
    ) -> Result<Self, Unsupported> {
        let parameters = with_profile_parameters(profile, cc, parameters);
        let cc = cc.to_owned();
        let mut controllers = Self { id, cc, parameters, hz, seed, first: None, external };
        let first = controllers
            .start(seed)
            .map_err(|e| Unsupported::new(format!("flow.{id}.cc"), e.to_string()))?;
        controllers.first = Some(first);
        Ok(controllers)
    }

    /// Create the congestion control for one end of the connection with this number.
    pub(crate) fn make(&mut self, number: u32, side: Side) -> Controller {
        let first = if (number, side) == (0, Side::Client) { self.first.take() } else { None };
        first.unwrap_or_else(|| {
            let seed = seed_for(self.seed, &format!("{side:?} {number}"));
            self.start(seed).expect("the first could be made")
        })
    }

    fn start(&self, seed: u64) -> Result<Controller, CcError> {
        let params: Vec<(&str, &str)> =
            self.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let setup = Setup { params: &params, seed, hz: self.hz };
        let external =
            self.external.as_ref().and_then(|external| external.controller(self.id, &setup));
        if let Some(made) = external {
            return made;
        }
        Registry::global().start(&self.cc, &setup, &skyhop_tcp::CALLER)
    }
}

/// Parameters whose values in the Linux release `profile` differ from the module's defaults, followed by the `given`
/// parameters, which override them.
fn with_profile_parameters(
    profile: Profile,
    cc: &str,
    given: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let Ok(module) = Module::find(cc) else { return given };
    let has = |name: &str| module.params().any(|param| param.name == name);
    let is_given = |name: &str| given.iter().any(|(key, _)| key == name);
    let own = skyhop_tcp::parameters_of(profile).iter();
    let own = own.filter(|(name, _)| has(name) && !is_given(name));
    let own = own.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    own.chain(given.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_sets_parameters_that_are_not_given() {
        let text = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let of = |cc, given: &[_]| with_profile_parameters(Profile::Linux4_15, cc, text(given));
        assert_eq!(of("bbr", &[]), text(&[("extra_acked_gain", "0")]));
        assert_eq!(of("bbr", &[("extra_acked_gain", "1")]), text(&[("extra_acked_gain", "1")]));
        assert_eq!(of("cubic", &[]), text(&[("hystart_all_samples", "0")]));
        assert_eq!(of("reno", &[]), []);
        assert_eq!(with_profile_parameters(Profile::Linux6_18, "cubic", Vec::new()), []);
    }
}
