//! Certificates: the system's, or those that the URL or the engine's usual variables name.
//!
//! A server whose certificate does not verify is not talked to, and is not tried again: it would not verify then either.

use crate::address::Address;
use git_fence_core::{StoreFault, StoreFaultKind};
use rustls::{AlertDescription, CertificateError};
#[cfg(feature = "postgres")]
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::{error::Error, fs, io, iter, sync::Arc};

/// Files for TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsFiles {
    /// Certificates of those who may sign; the system's if there is none.
    pub(crate) cacert: Option<String>,
    /// Our own certificate and its key.
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
}

/// The parameters of the URL that name such files.
pub(crate) const PARAMETERS: &str = "cacert, cert, key";
/// Each of them.
pub(crate) const FILES: [&str; 3] = ["cacert", "cert", "key"];

/// Why there is no encrypted connection.
#[derive(Debug, Clone)]
pub(crate) struct TlsTrouble {
    kind: StoreFaultKind,
    hint: String,
    /// Whether it was the handshake, so that nothing else has been sent.
    pub(crate) is_handshake: bool,
}

impl TlsTrouble {
    /// What an error says of TLS, if anything. The files are the URL's parameters for authority, certificate and key.
    pub(crate) fn of(e: &(dyn Error + 'static), files: [&str; 3]) -> Option<TlsTrouble> {
        let handshake = |kind, hint| Some(TlsTrouble { kind, hint, is_handshake: true });
        match cause(e)? {
            Cause::Tls(rustls::Error::InvalidCertificate(wrong)) => {
                handshake(StoreFaultKind::Unusable, what_to_do(wrong, files[0]))
            }
            Cause::Tls(rustls::Error::AlertReceived(alert)) if is_about_us(*alert) => {
                let [_, cert, key] = files;
                let hint = format!("set  {cert}=FILE&{key}=FILE  to a certificate that the server accepts");
                handshake(StoreFaultKind::Denied, hint)
            }
            // What the other side sends is no TLS, or TLS of a kind that this program does not have.
            Cause::Tls(rustls::Error::InvalidMessage(_) | rustls::Error::PeerIncompatible(_)) => {
                let hint = "check the URL: the server must speak TLS 1.2 or 1.3 at this port".to_owned();
                Some(TlsTrouble { kind: StoreFaultKind::Unusable, hint, is_handshake: false })
            }
            Cause::Tls(_) => None,
            Cause::Cut => Some(TlsTrouble::cut()),
        }
    }

    /// The connection ended in the handshake.
    pub(crate) fn cut() -> TlsTrouble {
        let hint = "check that the server speaks TLS at this port, or try again later".to_owned();
        TlsTrouble { kind: StoreFaultKind::Unreachable, hint, is_handshake: false }
    }

    /// The fault, with this sentence.
    pub(crate) fn fault(&self, why: String) -> StoreFault {
        StoreFault { kind: self.kind, why, hint: self.hint.clone() }
    }
}

/// What TLS has to do with an error.
enum Cause<'a> {
    Tls(&'a rustls::Error),
    /// The connection ended in the handshake.
    Cut,
}

/// Whether the connection was reset.
pub(crate) fn is_reset(e: &(dyn Error + 'static)) -> bool {
    let is_reset = |io: &io::Error| io.kind() == io::ErrorKind::ConnectionReset;
    causes(e).any(|e| e.downcast_ref::<io::Error>().is_some_and(is_reset))
}

/// What an error says of TLS, if anything.
fn cause<'a>(e: &'a (dyn Error + 'static)) -> Option<Cause<'a>> {
    let is_cut = |io: &io::Error| io.kind() == io::ErrorKind::UnexpectedEof && io.to_string().contains("handshake");
    causes(e).find_map(|e| match e.downcast_ref::<rustls::Error>() {
        Some(tls) => Some(Cause::Tls(tls)),
        None => e.downcast_ref::<io::Error>().is_some_and(is_cut).then_some(Cause::Cut),
    })
}

/// The error and all below it: some causes are kept where [`Error::source`] does not lead.
fn causes<'a>(e: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(e), |e| {
        let e: &'a (dyn Error + 'static) = *e;
        if let Some(shared) = e.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
            return Some(&**shared);
        }
        match e.downcast_ref::<io::Error>() {
            Some(io) => io.get_ref().map(|inner| inner as &(dyn Error + 'static)),
            None => e.source(),
        }
    })
}

fn what_to_do(wrong: &CertificateError, cacert: &str) -> String {
    use CertificateError as Wrong;
    match wrong {
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
            "use a name of the server that is in its certificate".to_owned()
        }
        Wrong::Expired | Wrong::ExpiredContext { .. } | Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "renew the server's certificate, or set the clock of this machine".to_owned()
        }
        _ => format!("set  {cacert}=FILE  in the URL to the certificate of the authority that signed the server's"),
    }
}

/// Whether an alert says that our certificate is missing or is not accepted.
fn is_about_us(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::DecryptError
            | Alert::HandshakeFailure
    )
}

impl TlsFiles {
    /// What the URL names, or else these files.
    pub(crate) fn of(address: &mut Address, otherwise: TlsFiles) -> Result<TlsFiles, StoreFault> {
        let files = TlsFiles {
            cacert: address.take("cacert").or(otherwise.cacert),
            cert: address.take("cert").or(otherwise.cert),
            key: address.take("key").or(otherwise.key),
        };
        if files.cert.is_some() != files.key.is_some() {
            return Err(StoreFault::unusable("a client certificate needs both 'cert' and 'key'", "name both files"));
        }
        Ok(files)
    }

    /// Whether no file is named.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_none(&self) -> bool {
        self.cacert.is_none() && self.cert.is_none()
    }

    /// What a file holds.
    pub(crate) fn read(path: &str) -> Result<Vec<u8>, StoreFault> {
        fs::read(path).map_err(|e| StoreFault::unusable(format!("cannot read '{path}': {e}"), "check the path"))
    }

    /// The configuration for rustls.
    #[cfg(feature = "postgres")]
    pub(crate) fn client_config(&self) -> Result<ClientConfig, StoreFault> {
        let mut roots = RootCertStore::empty();
        let wrong = |path: &str, e: &dyn std::fmt::Display| {
            StoreFault::unusable(format!("cannot use '{path}': {e}"), "it must be a PEM file")
        };
        match &self.cacert {
            Some(path) => {
                for certificate in CertificateDer::pem_slice_iter(&TlsFiles::read(path)?) {
                    let certificate = certificate.map_err(|e| wrong(path, &e))?;
                    roots.add(certificate).map_err(|e| wrong(path, &e))?;
                }
            }
            None => {
                let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else { return Ok(builder.with_no_client_auth()) };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&TlsFiles::read(cert)?).collect();
        let chain = chain.map_err(|e| wrong(cert, &e))?;
        let own_key = PrivateKeyDer::from_pem_slice(&TlsFiles::read(key)?).map_err(|e| wrong(key, &e))?;
        builder.with_client_auth_cert(chain, own_key).map_err(|e| wrong(cert, &e))
    }
}
