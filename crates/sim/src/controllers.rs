//! The congestion controls of a flow's connections.

use std::sync::Arc;

use skyhop_app::Side;
use skyhop_cc::{CcError, Controller, Module, Registry, Setup};
use skyhop_engine::Unsupported;
use skyhop_experiment::seed_for;
use skyhop_model::Profile;

use crate::session::Outside;

/// Makes one for each end of each of a flow's connections.
pub(crate) struct Controllers {
    id: u32,
    cc: String,
    parameters: Vec<(String, String)>,
    /// Their clock's ticks per second.
    hz: u32,
    seed: u64,
    /// The first one, made beforehand to find out whether it can be.
    first: Option<Controller>,
    outside: Option<Arc<dyn Outside>>,
}

impl Controllers {
    /// For the flow with this id; `seed` is that of its first connection's client.
    ///
    /// # Errors
    /// There is no such congestion control, or not with these parameters.
    pub(crate) fn new(
        id: u32,
        cc: &str,
        parameters: Vec<(String, String)>,
        (profile, hz): (Profile, u32),
        seed: u64,
        outside: Option<Arc<dyn Outside>>,
    ) -> Result<Self, Unsupported> {
        let parameters = of_profile(profile, cc, parameters);
        let cc = cc.to_owned();
        let mut controllers = Self { id, cc, parameters, hz, seed, first: None, outside };
        let first = controllers
            .start(seed)
            .map_err(|e| Unsupported::new(format!("flow.{id}.cc"), e.to_string()))?;
        controllers.first = Some(first);
        Ok(controllers)
    }

    /// That of an end of the connection with this number.
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
        let outside = self.outside.as_ref().and_then(|outside| outside.make(self.id, &setup));
        if let Some(made) = outside {
            return made;
        }
        Registry::global().start(&self.cc, &setup, &skyhop_tcp::CALLER)
    }
}

/// What the congestion control of this Linux had otherwise, before what is `given`.
fn of_profile(profile: Profile, cc: &str, given: Vec<(String, String)>) -> Vec<(String, String)> {
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
    fn a_profile_gives_what_nobody_else_has_given() {
        let text = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let of = |cc, given: &[_]| of_profile(Profile::Linux4_15, cc, text(given));
        assert_eq!(of("bbr", &[]), text(&[("extra_acked_gain", "0")]));
        assert_eq!(of("bbr", &[("extra_acked_gain", "1")]), text(&[("extra_acked_gain", "1")]));
        assert_eq!(of("cubic", &[]), text(&[("hystart_all_samples", "0")]));
        assert_eq!(of("reno", &[]), []);
        assert_eq!(of_profile(Profile::Linux6_18, "cubic", Vec::new()), []);
    }
}
