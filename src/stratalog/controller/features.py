"""Feature levels: raising and lowering what the cluster has agreed on.  Called by `controller.controller`; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stratalog.base.errors import ErrorCode
from stratalog.base.failures import ApiError
from stratalog.controller.controller import Result
from stratalog.metadata.image import METADATA_VERSION, MINIMUM_METADATA_VERSION
from stratalog.protocol.disk.metadata import FeatureLevelRecord
from stratalog.protocol.k57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from stratalog.protocol.schema import Message

if TYPE_CHECKING:
    from stratalog.controller.controller import Controller

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


def update_features(controller: Controller, request: UpdateFeaturesRequest) -> Result[UpdateFeaturesResponse]:
    """All of the request or nothing: a cluster between two sets of features helps nobody."""
    records: list[Message] = []
    results: list[UpdatableFeatureResult] = []
    failure: ApiError | None = None
    seen: set[str] = set()
    for update in request.feature_updates:
        try:
            if update.feature in seen:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"the request names {update.feature} twice")
            seen.add(update.feature)
            records += _update(controller, update)
            results.append(UpdatableFeatureResult(feature=update.feature, error_code=0, error_message=None))
        except ApiError as error:
            failure = failure or ApiError(error.code, f"the update of {update.feature} was refused: {error.message}")
            results.append(
                UpdatableFeatureResult(feature=update.feature, error_code=error.code, error_message=error.message)
            )
    if failure is not None:
        # Without results, as from Kafka: nothing of the request was done, and the reason stands at the top.
        response = UpdateFeaturesResponse(error_code=failure.code, error_message=failure.message, results=[])
        return Result((), response)
    response = UpdateFeaturesResponse(error_code=ErrorCode.NONE, error_message=None, results=results)
    return Result(() if request.validate_only else records, response)


def _update(controller: Controller, update: FeatureUpdateKey) -> list[Message]:
    name, level = update.feature, update.max_version_level
    has = controller.image.features.get(name, 0)
    kind = SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    supported = controller.supported_features.get(name)
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"unknown upgrade type {kind}")
    if level < 0:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"a level is not negative: {level}")
    if supported is None and not (level == 0 and name in controller.image.features):
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, "this cluster does not know the feature")
    if supported is not None and level != 0 and not supported[0] <= level <= supported[1]:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION, f"level {level} is not in the range {supported[0]} to {supported[1]}"
        )
    if level == has:
        return []
    if level > has and kind != UPGRADE:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{level} is above {has}: that is no downgrade")
    if level < has and kind == UPGRADE:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{level} is below {has}: that needs a downgrade")
    if name == METADATA_VERSION and level < max(has, MINIMUM_METADATA_VERSION):
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION, "records of the present version are in the log; it cannot be lowered"
        )
    return [FeatureLevelRecord(name=name, feature_level=level)]
