use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use skyhop_model::cc_language;

use crate::bindings::{self, TcpCongestionOps};
use crate::error::CcError;
use crate::param::Param;

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// A congestion control in C: one file in `cc/`, or one of the user's.
pub struct Module {
    name: &'static str,
    native: *const bindings::Module,
    bpf: Option<BpfObjects>,
    hears: bool,
    /// The whole name of the user's file.
    file: Option<&'static str>,
}

/// Files of the user's that have been loaded, by their whole names; of a file that changed, what it is now.
static ADOPTED: RwLock<BTreeMap<&'static str, &'static Module>> = RwLock::new(BTreeMap::new());

/// An algorithm's file compiled for the kernel: ELF objects for libbpf.
#[derive(Clone, Copy)]
pub struct BpfObjects {
    /// For kernels from 6.10 on, whose `cong_control` takes four arguments.
    pub current: &'static [u8],
    /// For those before, where it takes two.
    pub before_6_10: &'static [u8],
}

// SAFETY: `native` points to a constant of the C file, which nobody writes to.
unsafe impl Sync for Module {}
// SAFETY: likewise.
unsafe impl Send for Module {}

impl Module {
    /// Those of `cc/`, in alphabetical order.
    pub fn all() -> &'static [Module] {
        MODULES
    }

    /// The one of `cc/` with this name, or of this file of the user's, which somebody has loaded ([`Module::adopt`]).
    ///
    /// # Errors
    /// [`CcError::UnknownModule`], [`CcError::NotLoaded`].
    pub fn find(name: &str) -> Result<&'static Module, CcError> {
        if cc_language(name).is_some() {
            let adopted = ADOPTED.read().unwrap_or_else(PoisonError::into_inner);
            let module = adopted.get(name).copied();
            return module.ok_or_else(|| CcError::NotLoaded { file: name.to_owned() });
        }
        MODULES.iter().find(|module| module.name == name).ok_or_else(|| CcError::UnknownModule {
            name: name.to_owned(),
            known: comma_separated(MODULES.iter().map(|module| module.name)),
        })
    }

    /// What tests of hosts and engines need beyond what is in `cc/`: the files of `crates/cc/tests/modules`.
    #[doc(hidden)]
    pub fn fixture(name: &str) -> &'static Module {
        FIXTURES.iter().find(|module| module.name == name).expect("a file of tests/modules")
    }

    /// Makes a module of a file of the user's that has been compiled and loaded; `find` gives it under `file` from now
    /// on. `hears`: whether it looks at what is announced.
    ///
    /// # Errors
    /// [`CcError::MissingHook`].
    ///
    /// # Safety
    /// `native` is what `SKYHOP_MODULE` of this version's `skyhop_cc.h` defines, and stays loaded.
    pub unsafe fn adopt(
        file: &str,
        name: &str,
        native: *const bindings::Module,
        hears: bool,
    ) -> Result<&'static Module, CcError> {
        // They stay as long as what was loaded: connections point to it.
        let (name, file): (&str, &str) = (name.to_owned().leak(), file.to_owned().leak());
        let made = Module { name, native, bpf: None, hears, file: Some(file) };
        made.whole_ops()?;
        let module: &'static Module = Box::leak(Box::new(made));
        module.make_known();
        Ok(module)
    }

    /// Makes `find` give a file that was loaded before.
    pub fn make_known(&'static self) {
        if let Some(file) = self.file {
            ADOPTED.write().unwrap_or_else(PoisonError::into_inner).insert(file, self);
        }
    }

    /// Its file's name without the extension.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole name of its file, where that is the user's.
    pub fn file(&self) -> Option<&'static str> {
        self.file
    }

    /// What messages call its file.
    pub fn origin(&self) -> String {
        self.file.map_or_else(|| format!("cc/{}.c", self.name), str::to_owned)
    }

    /// One line about it.
    pub fn about(&self) -> &'static str {
        text(self.native().about)
    }

    /// Its parameters, in the order of its file.
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

    /// The values inside of its parameters, in the order of its file, where `given` are set by name and
    /// text as in the scenario and the others have their defaults.
    ///
    /// # Errors
    /// [`CcError::UnknownParam`], [`CcError::BadValue`], [`CcError::Twice`].
    pub fn values(&self, given: &[(&str, &str)]) -> Result<Vec<u64>, CcError> {
        Param::values(self.name, &self.params().collect::<Vec<_>>(), given)
    }

    /// Whether the algorithm sets cwnd and pacing itself; else Linux's PRR and its `cong_avoid` set cwnd.
    pub fn has_cong_control(&self) -> bool {
        self.ops().cong_control.is_some()
    }

    /// Whether it looks at handovers that are announced.
    pub fn hears_handovers(&self) -> bool {
        self.hears
    }

    /// The same file compiled for the kernel; `None` where the build had no clang, and of files of the user's.
    pub fn bpf_objects(&self) -> Option<BpfObjects> {
        self.bpf
    }

    /// Its hooks, once those that Linux requires are known to be there.
    pub(crate) fn whole_ops(&self) -> Result<TcpCongestionOps, CcError> {
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

/// A string literal of a C file.
fn text(literal: *const std::ffi::c_char) -> &'static str {
    // SAFETY: the header's macros fill these fields with string literals only.
    let literal = unsafe { CStr::from_ptr(literal) };
    literal.to_str().unwrap_or("(not UTF-8)")
}
