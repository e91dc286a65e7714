//! Congestion controls of a run in the kernel: the kernel's own algorithm if it has one of the name, else skyhop's
//! module, which is loaded for the duration of the run.
//!
//! Only the engine's process has references to the loaded modules, so that the kernel unloads them
//! however the process ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use skyhop_cc::Module;
use skyhop_ccfile::CcFileError;
use skyhop_experiment::cc_parameters;
use skyhop_kernel::{KernelError, PhaseReader, RegisteredModule, SignalMap};
use skyhop_model::{
    CcLanguage, POLICY_CC, SKYHOP_CC_PREFIX, cc_language, plain_cc_name, skyhop_cc_name,
};

use skyhop_host::error::{Context, HostError};

use skyhop_policyd::{DecisionServer, register_policy};
use tracing::{debug, info};

/// Modules loaded for a run, one per congestion control and set of parameters.
#[derive(Debug, Default)]
pub(crate) struct LoadedModules {
    /// Decision servers of the loaded policies.
    decision_servers: Vec<DecisionServer>,
    loaded: BTreeMap<Choice, RegisteredModule>,
    /// Kernel names of modules that root loaded before the run and that this run uses.
    loaded_by_root: BTreeSet<String>,
}

/// Name or file of a module, and its parameters.
type Choice = (String, Vec<(String, String)>);

/// Compile the user's C files for the kernel, so that errors in them are reported before the run begins. The
/// engine's process inherits the compiled modules.
///
/// # Errors
/// A file does not compile, or this machine lacks a tool for it.
pub(crate) fn compile_files(ccs: &[&str]) -> Result<(), KernelError> {
    for file in ccs.iter().filter(|cc| cc_language(cc) == Some(CcLanguage::C)) {
        let module = skyhop_ccfile::load(Path::new(file))?.module;
        skyhop_kernel::compile(module)?;
    }
    Ok(())
}

impl LoadedModules {
    /// Load the scenario's congestion control `cc` if necessary; return its name in the kernel.
    pub(crate) fn kernel_name(
        &mut self,
        cc: &str,
        parameters: &BTreeMap<String, serde_json::Value>,
    ) -> Result<String, HostError> {
        let parameters = cc_parameters(cc, parameters);
        if cc_language(cc) == Some(CcLanguage::Card) {
            return self.load_policy(cc, &parameters);
        }
        match module_for(cc)? {
            Some(module) => self.load(cc, module, parameters),
            None if parameters.is_empty() => {
                debug!(cc, "the kernel's own congestion control");
                Ok(cc.to_owned())
            }
            None => Err(HostError::Unsupported(format!(
                "the kernel's {cc} takes no parameters; leave out {cc}.*, or choose cc = \"{SKYHOP_CC_PREFIX}{cc}\""
            ))),
        }
    }

    /// BPF maps from which connections of the loaded modules read announcements.
    pub(crate) fn signal_maps(&self) -> Result<Vec<SignalMap>, HostError> {
        let maps = self.loaded.values().filter_map(|module| module.signals().transpose());
        maps.map(|map| map.context("cannot announce handovers")).collect()
    }

    /// Readers of the phases that the loaded modules report.
    pub(crate) fn phase_readers(&self) -> Result<Vec<PhaseReader>, HostError> {
        let readers =
            self.loaded.values().map(|module| module.phases().context("cannot follow a module"));
        readers.collect()
    }

    /// Move the decision servers out; the caller records their warnings at the end of the run.
    pub(crate) fn take_decision_servers(&mut self) -> Vec<DecisionServer> {
        std::mem::take(&mut self.decision_servers)
    }

    /// Warnings about modules loaded by root, which do not receive the run's announcements.
    pub(crate) fn announcement_warnings(&self) -> impl Iterator<Item = String> {
        self.loaded_by_root.iter().map(|name| {
            format!(
                "{name} does not receive this run's announcements: only root may pass them to it; \
                 run skyhop as root, which then loads the module for the run"
            )
        })
    }

    /// Load `cc/policy.c` with a decision server, once for all flows with this card and these parameters.
    fn load_policy(
        &mut self,
        card: &str,
        parameters: &[(String, String)],
    ) -> Result<String, HostError> {
        let refused = |error: CcFileError| HostError::of_congestion_control(card, &error.into());
        let loaded = skyhop_ccfile::load_policy(Path::new(card)).map_err(refused)?;
        let choice = (card.to_owned(), loaded.parameters(parameters));
        if let Some(known) = self.loaded.get(&choice) {
            return Ok(known.kernel_name().to_owned());
        }
        let (registered, decision_servers) =
            register_policy(card, &loaded.policy, &choice.1, None)?;
        self.decision_servers.push(decision_servers);
        let name = registered.kernel_name().to_owned();
        self.loaded.insert(choice, registered);
        Ok(name)
    }

    fn load(
        &mut self,
        cc: &str,
        module: &'static Module,
        parameters: Vec<(String, String)>,
    ) -> Result<String, HostError> {
        let choice = (module.file().unwrap_or(module.name()).to_owned(), parameters);
        if let Some(known) = self.loaded.get(&choice) {
            return Ok(known.kernel_name().to_owned());
        }
        let given: Vec<(&str, &str)> =
            choice.1.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        match skyhop_kernel::register(module, &given) {
            Ok(registered) => {
                let name = registered.kernel_name().to_owned();
                info!(cc, kernel_name = name, parameters = ?choice.1, "congestion control registered");
                self.loaded.insert(choice, registered);
                Ok(name)
            }
            // Root may have loaded the module for all users.
            Err(error @ KernelError::NotRoot) => match skyhop_kernel::loaded_name(module) {
                Some(name) if choice.1.is_empty() => {
                    info!(
                        cc,
                        kernel_name = name,
                        "only root may register modules; root has loaded this one"
                    );
                    self.loaded_by_root.insert(name.clone());
                    Ok(name)
                }
                _ => Err(HostError::of_congestion_control(cc, &error)),
            },
            Err(error) => Err(HostError::of_congestion_control(cc, &error)),
        }
    }
}

/// skyhop's module for `cc`; `None` if the kernel has its own algorithm of this name, or if skyhop
/// does not know the name.
fn module_for(cc: &str) -> Result<Option<&'static Module>, HostError> {
    if cc_language(cc).is_some() {
        let module = Module::find(cc).map_err(KernelError::from);
        return module.map(Some).map_err(|error| HostError::of_congestion_control(cc, &error));
    }
    if let Some(name) = skyhop_cc_name(cc) {
        let module = Module::find(name).map_err(KernelError::from);
        return module.map(Some).map_err(|error| HostError::of_congestion_control(cc, &error));
    }
    let own =
        skyhop_kernel::has_own(cc).map_err(|error| HostError::of_congestion_control(cc, &error))?;
    Ok(if own { None } else { Module::find(cc).ok() })
}

/// Whether the scenario's congestion control `cc` sets the pacing rate of its connections.
pub(crate) fn paces(cc: &str) -> bool {
    let name =
        if cc_language(cc) == Some(CcLanguage::Card) { POLICY_CC } else { plain_cc_name(cc) };
    Module::find(name).map_or(name.starts_with("bbr"), Module::has_cong_control)
}
