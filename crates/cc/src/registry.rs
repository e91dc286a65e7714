//! Registry of all congestion controls by name: modules of `cc/` by their file, others by registration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use skyhop_model::{cc_language, plain_cc_name};
use skyhop_units::Duration;

use crate::caller::Caller;
use crate::congestion_control::CongestionControl;
use crate::error::CcError;
use crate::instance::Instance;
use crate::module::{Module, comma_separated};

/// Settings for the controller of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Parameters, pairs of name and text as in the scenario; parameters not named have their defaults.
    pub params: &'a [(&'a str, &'a str)],
    /// Seed of the controller's random numbers.
    pub seed: u64,
    /// Ticks per second of Linux's coarse clock (CONFIG_HZ: 100, 250, 300 or 1000).
    pub hz: u32,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { params: &[], seed: 0, hz: 1000 }
    }
}

/// Controller of a connection, a module or a Rust type.
pub type Controller = Box<dyn CongestionControl>;

/// Use of announced handovers by a congestion control with certain parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Announcements {
    /// Whether it reads announced handovers.
    pub are_used: bool,
    /// Time from an announcement to its handover that it needs; `None` if it declares none.
    pub lead: Option<Duration>,
}

type Use = Arc<dyn Fn(&[(&str, &str)]) -> Announcements + Send + Sync>;
type Make = Arc<dyn Fn(&Setup<'_>) -> Result<Controller, CcError> + Send + Sync>;

#[derive(Clone)]
struct Registered {
    make: Make,
    announcements: Use,
}

/// Congestion controls that connections may use: all modules, registered controllers, and the user's files.
#[derive(Default)]
pub struct Registry {
    registered: RwLock<BTreeMap<String, Registered>>,
}

/// Registry that runs use.
static GLOBAL: Registry = Registry::new();

impl Registry {
    /// Return a registry of the modules only.
    pub const fn new() -> Self {
        Self { registered: RwLock::new(BTreeMap::new()) }
    }

    /// Return the registry that runs use.
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// Add a controller under a name; `make` creates one for each connection. It gets no announcements.
    ///
    /// # Errors
    /// [`CcError::NameTaken`].
    pub fn register(
        &self,
        name: &str,
        make: impl Fn(&Setup<'_>) -> Result<Controller, CcError> + Send + Sync + 'static,
    ) -> Result<(), CcError> {
        let mut registered = self.registered.write().unwrap_or_else(PoisonError::into_inner);
        if Module::find(name).is_ok() || registered.contains_key(name) {
            return Err(CcError::NameTaken { name: name.to_owned() });
        }
        let announcements: Use = Arc::new(|_| Announcements::default());
        registered.insert(name.to_owned(), Registered { make: Arc::new(make), announcements });
        Ok(())
    }

    /// Add the function that creates controllers for a user's file, in place of the function of an earlier
    /// version of the file. `announcements` returns the use of announced handovers with given parameters.
    pub fn adopt(
        &self,
        file: &str,
        announcements: impl Fn(&[(&str, &str)]) -> Announcements + Send + Sync + 'static,
        make: impl Fn(&Setup<'_>) -> Result<Controller, CcError> + Send + Sync + 'static,
    ) {
        let mut registered = self.registered.write().unwrap_or_else(PoisonError::into_inner);
        let announcements: Use = Arc::new(announcements);
        registered.insert(file.to_owned(), Registered { make: Arc::new(make), announcements });
    }

    /// All names in alphabetical order. User's files have no names and are left out.
    pub fn names(&self) -> Vec<String> {
        let registered = self.registered.read().unwrap_or_else(PoisonError::into_inner);
        let modules = Module::all().iter().map(|module| module.name().to_owned());
        let others = registered.keys().filter(|name| cc_language(name).is_none()).cloned();
        let mut names: Vec<String> = modules.chain(others).collect();
        names.sort();
        names
    }

    /// Create the controller for a connection of the engine `caller`, by the controller's name in a scenario or
    /// the absolute path of its file.
    ///
    /// # Errors
    /// [`CcError::UnknownModule`], [`CcError::NotLoaded`], an error about the parameters, or the error of
    /// [`Caller::accept`].
    pub fn start(
        &self,
        name: &str,
        setup: &Setup<'_>,
        caller: &Caller,
    ) -> Result<Controller, CcError> {
        let name = plain_cc_name(name);
        let registered = self.registered.read().unwrap_or_else(PoisonError::into_inner);
        let found = registered.get(name).cloned();
        drop(registered);
        if let Some(Registered { make, .. }) = found {
            let controller = make(setup)?;
            caller.accept_ecn(name, controller.needs_ecn())?;
            return Ok(controller);
        }
        let module = Module::find(name).map_err(|error| match error {
            CcError::UnknownModule { .. } => self.unknown(name),
            other => other,
        })?;
        caller.accept(module)?;
        Ok(Box::new(Instance::with_setup(module, setup)?))
    }

    /// Use of announced handovers by a congestion control with the parameters `given` in a scenario; `name` as in
    /// [`Registry::start`]. An unknown one uses none.
    pub fn announcements(&self, name: &str, given: &[(&str, &str)]) -> Announcements {
        let name = plain_cc_name(name);
        let registered = self.registered.read().unwrap_or_else(PoisonError::into_inner);
        let found = registered.get(name).cloned();
        drop(registered);
        match found {
            Some(Registered { announcements, .. }) => announcements(given),
            None => Module::find(name)
                .map_or(Announcements::default(), |module| module.announcements(given)),
        }
    }

    fn unknown(&self, name: &str) -> CcError {
        let known = comma_separated(self.names().iter().map(String::as_str));
        CcError::UnknownModule { name: name.to_owned(), known }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.names()).finish()
    }
}
