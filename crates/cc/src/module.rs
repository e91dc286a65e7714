use std::ffi::CStr;
use std::fmt;

use crate::bindings::{self, TcpCongestionOps};
use crate::error::CcError;
use crate::param::Param;

include!(concat!(env!("OUT_DIR"), "/modules.rs"));

/// A congestion control: one file in `cc/`.
pub struct Module {
    name: &'static str,
    native: *const bindings::Module,
    bpf: Option<BpfObjects>,
    hears: bool,
}

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

impl Module {
    /// All of them, in alphabetical order.
    pub fn all() -> &'static [Module] {
        MODULES
    }

    /// The one with this name.
    ///
    /// # Errors
    /// [`CcError::UnknownModule`].
    pub fn find(name: &str) -> Result<&'static Module, CcError> {
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

    /// Its file's name without the extension.
    pub fn name(&self) -> &'static str {
        self.name
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

    /// The same file compiled for the kernel; `None` where the build had no clang.
    pub fn bpf_objects(&self) -> Option<BpfObjects> {
        self.bpf
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
    literal.to_str().expect("the files in cc/ are UTF-8")
}
