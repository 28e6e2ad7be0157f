//! Certificates: the system's, or those that the URL or the engine's usual variables name.

use crate::address::Address;
use git_fence_core::StoreFault;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::fs;

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

    /// What the files hold.
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
