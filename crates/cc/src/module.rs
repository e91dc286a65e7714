use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use skyhop_model::cc_language;
use skyhop_units::Duration;

use crate::bindings::{self, TcpCongestionOps};
use crate::error::CcError;
use crate::param::Param;
use crate::registry::Announcements;

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// Congestion control in C: one file in `cc/`, or one of the user's.
pub struct Module {
    name: &'static str,
    native: *const bindings::Module,
    bpf: Option<BpfObjects>,
    uses_announcements: bool,
    /// Absolute path of the user's file.
    file: Option<&'static str>,
}

/// User's files that have been loaded, by their absolute paths; for a changed file, its latest version.
static LOADED: RwLock<BTreeMap<&'static str, &'static Module>> = RwLock::new(BTreeMap::new());

/// ELF objects of an algorithm's file for libbpf, compiled for the kernel.
#[derive(Clone, Copy)]
pub struct BpfObjects {
    /// Object for kernels from 6.10 on, whose `cong_control` takes four arguments.
    pub current: &'static [u8],
    /// Object for kernels before 6.10, whose `cong_control` takes two arguments.
    pub before_6_10: &'static [u8],
}

// SAFETY: `native` points to a constant of the C file, which is never written.
unsafe impl Sync for Module {}
// SAFETY: as for `Sync`, the constant is never written.
unsafe impl Send for Module {}

impl Module {
    /// Modules of `cc/`, in alphabetical order.
    pub fn all() -> &'static [Module] {
        MODULES
    }

    /// Find the module of `cc/` with this name, or that of the user's file with this path, once it is loaded
    /// ([`Module::adopt`]).
    ///
    /// # Errors
    /// [`CcError::UnknownModule`], [`CcError::NotLoaded`].
    pub fn find(name: &str) -> Result<&'static Module, CcError> {
        if cc_language(name).is_some() {
            let loaded = LOADED.read().unwrap_or_else(PoisonError::into_inner);
            let module = loaded.get(name).copied();
            return module.ok_or_else(|| CcError::NotLoaded { file: name.to_owned() });
        }
        MODULES.iter().find(|module| module.name == name).ok_or_else(|| CcError::UnknownModule {
            name: name.to_owned(),
            known: comma_separated(MODULES.iter().map(|module| module.name)),
        })
    }

    /// Find a module of `crates/cc/tests/modules`, for tests of hosts and engines.
    #[doc(hidden)]
    pub fn fixture(name: &str) -> &'static Module {
        FIXTURES.iter().find(|module| module.name == name).expect("a file of tests/modules")
    }

    /// Make a module of a user's file that has been compiled and loaded; [`Module::find`] returns it for `file`
    /// from now on. `uses_announcements`: whether it reads announced handovers.
    ///
    /// # Errors
    /// [`CcError::MissingHook`].
    ///
    /// # Safety
    /// `native` is the symbol that `SKYHOP_MODULE` of this version's `skyhop_cc.h` defines, and stays loaded.
    pub unsafe fn adopt(
        file: &str,
        name: &str,
        native: *const bindings::Module,
        uses_announcements: bool,
    ) -> Result<&'static Module, CcError> {
        // The strings live as long as the loaded code, because connections point to it.
        let (name, file): (&str, &str) = (name.to_owned().leak(), file.to_owned().leak());
        let made = Module { name, native, bpf: None, uses_announcements, file: Some(file) };
        made.checked_ops()?;
        let module: &'static Module = Box::leak(Box::new(made));
        module.register_file();
        Ok(module)
    }

    /// Make [`Module::find`] return this module for its file again, after another version of the file was
    /// loaded.
    pub fn register_file(&'static self) {
        if let Some(file) = self.file {
            LOADED.write().unwrap_or_else(PoisonError::into_inner).insert(file, self);
        }
    }

    /// Name of the module: its file's name without the extension.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Absolute path of the module's file, if it is the user's.
    pub fn file(&self) -> Option<&'static str> {
        self.file
    }

    /// Name of the module's file in messages.
    pub fn origin(&self) -> String {
        self.file.map_or_else(|| format!("cc/{}.c", self.name), str::to_owned)
    }

    /// Description of the module in one line.
    pub fn about(&self) -> &'static str {
        text(self.native().about)
    }

    /// Parameters of the module, in the order of its file.
    pub fn params(&self) -> impl ExactSizeIterator<Item = Param> + use<> {
        self.raw_params().iter().map(|raw| Param {
            name: text(raw.name),
            unit: text(raw.unit),
            about: text(raw.about),
            scale: raw.scale,
            initial: raw.initial,
            least: raw.least,
            most: raw.most,
        })
    }

    /// Internal values of the module's parameters, in the order of its file: `given` pairs of name and text as
    /// in the scenario, defaults for the others.
    ///
    /// # Errors
    /// [`CcError::UnknownParam`], [`CcError::BadValue`], [`CcError::GivenTwice`].
    pub fn values(&self, given: &[(&str, &str)]) -> Result<Vec<u64>, CcError> {
        Param::values(self.name, &self.params().collect::<Vec<_>>(), given)
    }

    /// Whether the algorithm sets cwnd and pacing itself; else Linux's PRR and its `cong_avoid` set cwnd.
    pub fn has_cong_control(&self) -> bool {
        self.ops().cong_control.is_some()
    }

    /// Whether the algorithm reads announced handovers.
    pub fn uses_announcements(&self) -> bool {
        self.uses_announcements
    }

    /// Use of announced handovers with these parameters, `given` as in the scenario: the parameter `lead`, in ms, is
    /// the time that the algorithm needs; with `source = "own"` it follows a schedule of its own.
    pub fn announcements(&self, given: &[(&str, &str)]) -> Announcements {
        let values = self.values(given).unwrap_or_default();
        let value_of = |name: &str| {
            let params = self.params().zip(&values);
            params
                .filter(|(param, _)| param.name == name)
                .map(|(param, value)| (param, *value))
                .next()
        };
        let own =
            value_of("source").is_some_and(|(param, value)| param.text_of(value as i64) == "own");
        Announcements {
            are_used: self.uses_announcements && !own,
            lead: value_of("lead").map(|(_, ms)| Duration::from_millis(ms)),
        }
    }

    /// The module compiled for the kernel; `None` if the build had no clang, and for the user's files.
    pub fn bpf_objects(&self) -> Option<BpfObjects> {
        self.bpf
    }

    /// Return the module's hooks, after checking those that Linux requires.
    pub(crate) fn checked_ops(&self) -> Result<TcpCongestionOps, CcError> {
        let ops = self.ops();
        let missing = if ops.ssthresh.is_none() {
            "ssthresh"
        } else if ops.undo_cwnd.is_none() {
            "undo_cwnd"
        } else if ops.cong_avoid.is_none() && ops.cong_control.is_none() {
            "cong_avoid or cong_control"
        } else {
            return Ok(ops);
        };
        Err(CcError::MissingHook { origin: self.origin(), hook: missing })
    }

    pub(crate) fn ops(&self) -> TcpCongestionOps {
        // SAFETY: SKYHOP_MODULE points `ops` to a constant.
        unsafe { *self.native().ops }
    }

    pub(crate) fn state_bytes(&self) -> usize {
        self.native().state_bytes as usize
    }

    fn native(&self) -> &'static bindings::Module {
        // SAFETY: the table points to the constant that SKYHOP_MODULE defines.
        unsafe { &*self.native }
    }

    fn raw_params(&self) -> &'static [bindings::Param] {
        let native = self.native();
        if native.params_len == 0 {
            return &[];
        }
        // SAFETY: SKYHOP_PARAMS defines `params` as an array of `params_len` rows.
        unsafe { std::slice::from_raw_parts(native.params, native.params_len as usize) }
    }
}

impl PartialEq for Module {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Module {}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({})", self.name)
    }
}

pub(crate) fn comma_separated<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Convert a string literal of a C file.
fn text(literal: *const std::ffi::c_char) -> &'static str {
    // SAFETY: the header's macros fill these fields with string literals only.
    let literal = unsafe { CStr::from_ptr(literal) };
    literal.to_str().unwrap_or("(not UTF-8)")
}
