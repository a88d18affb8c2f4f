//! Signatures of tokens, checked by the `ring` that TLS links already, as `jsonwebtoken`'s provider.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{self, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use ring::{agreement, hmac, rand};

/// The provider of this process. Tokens are signed by others, so that it signs with a shared secret only: what tests
/// and tools do.
pub(super) static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    // For thumbprints and public parts of private keys, which are not used.
    key_utils: KeyUtils::new_unimplemented(),
};

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    let scheme = match algorithm {
        Algorithm::HS256 => SignatureScheme::Hmac,
        Algorithm::RS256 => SignatureScheme::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::PS256 => SignatureScheme::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::ES256 => SignatureScheme::Curve(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => SignatureScheme::Curve(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => SignatureScheme::Curve(&ED25519),
        _ => return Err(ErrorKind::UnsupportedAlgorithm.into()),
    };
    Ok(Box::new(Key {
        algorithm: *algorithm,
        scheme,
        key: key.clone(),
    }))
}

struct Key {
    algorithm: Algorithm,
    scheme: SignatureScheme,
    key: DecodingKey,
}

enum SignatureScheme {
    Hmac,
    Rsa(&'static RsaParameters),
    Curve(&'static dyn VerificationAlgorithm),
}

impl Verifier<Vec<u8>> for Key {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), signature::Error> {
        let verified = match (&self.scheme, self.key.kind()) {
            (SignatureScheme::Hmac, DecodingKeyKind::SecretOrDer(secret)) => {
                hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), message, signature)
            }
            (SignatureScheme::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let (n, e) = (without_leading_zeros(n), without_leading_zeros(e));
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (SignatureScheme::Curve(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(*algorithm, point).verify(message, signature)
            }
            _ => Err(ring::error::Unspecified),
        };
        // Do not reveal why: it would help a forger.
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Key {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// `ring` rejects leading zeros.
fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

/// Whether the bytes are a point of the curve. For NIST curves `ring` parses a point during key agreement, so one is run. For
/// Ed25519 only the length is checked: an invalid point verifies nothing.
pub(super) fn is_point(algorithm: Algorithm, bytes: &[u8]) -> bool {
    let curve = match algorithm {
        Algorithm::ES256 => &agreement::ECDH_P256,
        Algorithm::ES384 => &agreement::ECDH_P384,
        Algorithm::EdDSA => return bytes.len() == ring::signature::ED25519_PUBLIC_KEY_LEN,
        _ => return false,
    };
    agreement::EphemeralPrivateKey::generate(curve, &rand::SystemRandom::new()).is_ok_and(|own| {
        agreement::agree_ephemeral(own, &agreement::UnparsedPublicKey::new(curve, bytes), |_| ()).is_ok()
    })
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    match algorithm {
        Algorithm::HS256 => Ok(Box::new(HmacSecret(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())))),
        _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

struct HmacSecret(hmac::Key);

impl Signer<Vec<u8>> for HmacSecret {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, signature::Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl JwtSigner for HmacSecret {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}
